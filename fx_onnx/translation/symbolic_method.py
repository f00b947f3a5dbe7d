"""Support for the ``symbolic`` method of an autograd.Function, as torch.onnx's TorchScript exporter defined it.

``symbolic(g, x, alpha)`` translates ``apply(x, alpha)`` to ONNX: ``g.op("Domain::Name", x, alpha_f=alpha)`` emits a
node. A tensor arrives as a ``SymbolicValue``; other arguments arrive unchanged.
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

# TorchScript's names of dtypes.
_SCALAR_TYPES = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip


def translation_of(function: type[Function]) -> Callable[..., Any]:
    """Returns a translation that calls the function's ``symbolic``; it takes the arguments of ``apply``."""

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
    """The parameter ``g`` of ``symbolic``.

    Attributes:
        opset: the version of the default ONNX domain.
    """

    def __init__(self, op: Emitter) -> None:
        self.opset = op.opset
        self._op = op

    def op(self, opname: str, *raw_args: Any, outputs: int = 1, **kwargs: Any) -> Any:
        """Emits one node and returns its value, or a tuple of values if ``outputs`` is more than one.

        Args:
            opname: ``"Name"`` of an ONNX operator, or ``"domain::Name"``.
            raw_args: values; None leaves out an optional input; numbers and tensors become constants.
            outputs: the number of outputs.
            kwargs: attributes whose names end in their type: ``_i``, ``_f`` or ``_s`` for one or several, ``_t`` for a
                tensor; None leaves out an attribute.

        Raises:
            NotImplementedError: the operator belongs to TorchScript.
            ValueError: the name of an attribute does not end in a type.
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
            raise TypeError("an input of g.op is a list of values, but ONNX takes one tensor for each input")
        return _unwrapped(argument)

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError for the methods of TorchScript's graph that do not exist here."""
        reason = f"the graph of symbolic has op() and opset, but no {name!r}"
        raise AttributeError(reason)


_ATTRIBUTE = re.compile(r"(.+)_([ifst])")


def _attribute(key: str, value: Any) -> tuple[str, Any]:
    """Returns the ONNX name of an attribute and its value converted to the type that its suffix names."""
    match = _ATTRIBUTE.fullmatch(key)
    if match is None:
        raise ValueError(f"the attribute {key!r} of g.op must end in _i, _f, _s or _t, which names its type")
    name, kind = match.groups()
    if kind == "t":
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(value)
        return name, TorchTensor(tensor.contiguous())
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    convert = _CONVERSIONS[kind]
    return name, [convert(item) for item in value] if isinstance(value, (list, tuple)) else convert(value)


def _integer(value: Any) -> Any:
    """Returns an int, or a symbolic size unchanged, because the emitter's error names the size."""
    return value if isinstance(value, torch.SymInt) else int(value)


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {"i": _integer, "f": float, "s": str}


class SymbolicValue:
    """A tensor argument of ``symbolic``, or a result of ``g.op``.

    Attributes:
        value: the ONNX value.
    """

    def __init__(self, value: ir.Value, op: Emitter) -> None:
        self.value = value
        self._op = op

    def type(self) -> SymbolicType:
        """Returns the dtype and the sizes of the tensor, each None if unknown."""
        sizes = known_sizes(self.value)
        dtype = None if self.value.dtype is None else dtypes.torch_dtype(self.value.dtype)
        return SymbolicType(dtype, None if sizes is None else list(sizes))

    def setType(self, type: SymbolicType) -> SymbolicValue:
        """Sets the dtype and the sizes that ONNX cannot infer; the results of ``symbolic`` get those of the forward."""
        if (dtype := type.dtype()) is not None:
            self.value.type = ir.TensorType(dtypes.onnx_dtype(dtype))
        if (sizes := type.sizes()) is not None:
            self._op.with_sizes(self.value, sizes)
        return self


@dataclass(frozen=True)
class SymbolicType:
    """The dtype and the sizes of a tensor, each None if unknown."""

    _dtype: torch.dtype | None
    _sizes: list[Any] | None

    def dtype(self) -> torch.dtype | None:
        """Returns the dtype."""
        return self._dtype

    def scalarType(self) -> str | None:
        """Returns TorchScript's name of the dtype, such as ``Float``."""
        return None if self._dtype is None else _SCALAR_TYPES.get(self._dtype)

    def sizes(self) -> list[Any] | None:
        """Returns the sizes; a dynamic size is a SymInt."""
        return self._sizes

    def dim(self) -> int | None:
        """Returns the number of dimensions."""
        return None if self._sizes is None else len(self._sizes)

    def with_sizes(self, sizes: list[Any] | None) -> SymbolicType:
        """Returns the type with other sizes; a list that contains None makes the sizes unknown."""
        return replace(self, _sizes=None if sizes is None or None in sizes else list(sizes))

    def with_dtype(self, dtype: torch.dtype) -> SymbolicType:
        """Returns the type with another dtype."""
        return replace(self, _dtype=dtype)
