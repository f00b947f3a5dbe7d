"""The graph that an autograd.Function's ``symbolic`` method writes to, as torch.onnx's TorchScript exporter had it.

``symbolic(g, x, alpha)`` says what ``apply(x, alpha)`` is in ONNX: ``g.op("Domain::Name", x, alpha_f=alpha)`` emits a
node. Tensors come as ``SymbolicValue``, everything else as it was given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor
from torch.autograd import Function

from fx_onnx.core import dtypes
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.known_sizes import known_sizes

# The names of dtypes in TorchScript's types.
_SCALAR_TYPES = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip


def translation_of(function: type[Function]) -> Callable[..., Any]:
    """A translation that asks the function's ``symbolic``; it takes the arguments of ``apply``."""

    def translation(op: Emitter, *args: Any) -> Any:
        graph = GraphContext(op)
        return _unwrapped(function.symbolic(graph, *(_wrapped(argument, op) for argument in args)))  # type: ignore[attr-defined]

    translation.__name__ = f"{function.__name__}.symbolic"
    return translation


def _wrapped(argument: Any, op: Emitter) -> Any:
    if isinstance(argument, ir.Value):
        return SymbolicValue(argument, op)
    return [_wrapped(item, op) for item in argument] if isinstance(argument, (list, tuple)) else argument


def _unwrapped(result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        return [_unwrapped(item) for item in result]
    return result.value if isinstance(result, SymbolicValue) else result


class GraphContext:
    """What ``symbolic`` gets as ``g``.

    Attributes:
        opset: the version of the default ONNX domain.
    """

    def __init__(self, op: Emitter) -> None:
        self.opset = op.opset
        self._op = op

    def op(self, opname: str, *raw_args: Any, outputs: int = 1, **kwargs: Any) -> Any:
        """Emits one node, and gives its value, or a tuple of values where ``outputs`` is more than one.

        Args:
            opname: ``"Name"`` of ONNX, or ``"domain::Name"``.
            raw_args: values; None for an optional input left out; numbers and tensors become constants.
            outputs: how many.
            kwargs: attributes, their names ending in their kind: ``_i``, ``_f``, ``_s`` (of one or of several) or
                ``_t``; None leaves one out.

        Raises:
            NotImplementedError: it is an operator of TorchScript.
            ValueError: an attribute's name does not end in a kind.
        """
        domain, _, op_type = opname.rpartition("::")
        if domain in ("aten", "prim", "quantized"):
            raise NotImplementedError(f"symbolic calls {opname}, an operator of TorchScript, which ONNX does not have")
        domain = "" if domain == "onnx" else domain
        attributes = dict(_attribute(key, value) for key, value in kwargs.items() if value is not None)
        inputs = [self._input(argument) for argument in raw_args]
        results = self._op.emit(op_type, *inputs, domain=domain, outputs=outputs, **attributes)
        return _wrapped(results, self._op) if outputs == 1 else tuple(_wrapped(results, self._op))

    def _input(self, argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            return self._op.constant(TorchTensor(argument.detach()).numpy(), argument.dtype)
        if isinstance(argument, (list, tuple)) and any(isinstance(item, SymbolicValue) for item in argument):
            raise TypeError("an input of g.op is a list of values, which no ONNX tensor is")
        return _unwrapped(argument)

    def __getattr__(self, name: str) -> Any:
        """What TorchScript's graphs had besides, and this one has not."""
        reason = f"the graph of symbolic has op() and opset, but no {name!r}"
        raise AttributeError(reason)


_ATTRIBUTE = re.compile(r"(.+)_([ifst])")


def _attribute(key: str, value: Any) -> tuple[str, Any]:
    """An attribute's own name, and its value in the kind that the name asks for."""
    match = _ATTRIBUTE.fullmatch(key)
    if match is None:
        raise ValueError(f"the attribute {key!r} of g.op must end in _i, _f, _s or _t, which says its kind")
    name, kind = match.groups()
    if kind == "t":
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(value)
        return name, TorchTensor(tensor.contiguous())
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    convert = _CONVERSIONS[kind]
    return name, [convert(item) for item in value] if isinstance(value, (list, tuple)) else convert(value)


def _integer(value: Any) -> Any:
    """A symbolic size stays one, which the emitter then refuses by its name."""
    return value if isinstance(value, torch.SymInt) else int(value)


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {"i": _integer, "f": float, "s": str}


class SymbolicValue:
    """A tensor as ``symbolic`` sees it.

    Attributes:
        value: the ONNX value.
    """

    def __init__(self, value: ir.Value, op: Emitter) -> None:
        self.value = value
        self._op = op

    def type(self) -> SymbolicType:
        """What is known of its dtype and sizes."""
        sizes = known_sizes(self.value)
        dtype = None if self.value.dtype is None else dtypes.torch_dtype(self.value.dtype)
        return SymbolicType(dtype, None if sizes is None else list(sizes))

    def setType(self, type: SymbolicType) -> SymbolicValue:
        """States what ONNX cannot infer; the results of ``symbolic`` get those of the forward."""
        if (dtype := type.dtype()) is not None:
            self.value.type = ir.TensorType(dtypes.onnx_dtype(dtype))
        if (sizes := type.sizes()) is not None:
            self._op.with_sizes(self.value, sizes)
        return self


@dataclass(frozen=True)
class SymbolicType:
    """The type of a tensor; None for what is not known."""

    _dtype: torch.dtype | None
    _sizes: list[Any] | None

    def dtype(self) -> torch.dtype | None:
        """Its dtype."""
        return self._dtype

    def scalarType(self) -> str | None:
        """TorchScript's name of the dtype, such as ``Float``."""
        return None if self._dtype is None else _SCALAR_TYPES.get(self._dtype)

    def sizes(self) -> list[Any] | None:
        """Ints, and SymInts where sizes are dynamic."""
        return self._sizes

    def dim(self) -> int | None:
        """The number of dimensions."""
        return None if self._sizes is None else len(self._sizes)

    def with_sizes(self, sizes: list[Any] | None) -> SymbolicType:
        """The type with other sizes; one that is None leaves them unknown."""
        return replace(self, _sizes=None if sizes is None or None in sizes else list(sizes))

    def with_dtype(self, dtype: torch.dtype) -> SymbolicType:
        """The type with another dtype."""
        return replace(self, _dtype=dtype)
