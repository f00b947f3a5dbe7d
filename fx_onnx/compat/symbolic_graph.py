"""The objects of a symbolic function, as in torch.onnx's TorchScript exporter: the graph ``g``, values, types, nodes.

``symbolic(g, x, alpha)`` translates an operator to ONNX: ``g.op("Domain::Name", x, alpha_f=alpha)`` emits a node. A
tensor is a ``SymbolicValue``; every other argument is a Python object. The classes have the methods that published
symbolic functions call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir
import onnxscript
import torch
from onnx_ir.tensor_adapters import TorchTensor
from torch.export.graph_signature import InputKind

from fx_onnx.compat.jit_scalar_type import JitScalarType
from fx_onnx.custom_translations.onnxscript_functions import call_script
from fx_onnx.extension_points.rooms import TABLE, find
from fx_onnx.messages.arguments import shown
from fx_onnx.onnx_model import dtypes, metadata
from fx_onnx.onnx_model.weights import as_torch
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.known_sizes import known_sizes


def wrapped(argument: Any, op: Emitter) -> Any:
    """Returns an argument with each ONNX value in it as a ``SymbolicValue``."""
    if isinstance(argument, ir.Value):
        return SymbolicValue(argument, op)
    return [wrapped(item, op) for item in argument] if isinstance(argument, (list, tuple)) else argument


def unwrapped(result: Any) -> Any:
    """Returns a result with the ONNX value of each ``SymbolicValue`` in it."""
    if isinstance(result, (list, tuple)):
        return [unwrapped(item) for item in result]
    return result.value if isinstance(result, SymbolicValue) else result


# ---------------------------------------------------------------- the graph


class GraphContext:
    """The parameter ``g`` of a symbolic function.

    Attributes:
        opset: the version of the default ONNX domain in which the nodes are emitted.
        original_node: the call that is translated.
        params_dict: the weights by name; empty, because a weight is a value with a type.
    """

    def __init__(self, op: Emitter, original_node: Call | None = None) -> None:
        self.opset = op.opset
        self.original_node = original_node
        self.params_dict: dict[str, Any] = {}
        self._op = op

    def op(self, opname: str, *raw_args: Any, outputs: int = 1, **kwargs: Any) -> Any:
        """Emits one node and returns its value, or a tuple of values if ``outputs`` is more than one.

        Args:
            opname: ``"Name"`` of an ONNX operator, or ``"domain::Name"``.
            raw_args: values; None leaves out an optional input; numbers, tensors and lists of numbers become constants.
            outputs: the number of outputs.
            kwargs: attributes whose names end in their type: ``_i``, ``_f`` or ``_s`` for one or several, ``_t`` for a
                tensor; None leaves out an attribute.

        Raises:
            NotImplementedError: the operator belongs to TorchScript.
            TypeError: ``opname`` is not a string, or the operator has no such input, output or attribute.
            ValueError: the name of an attribute does not end in a type.
        """
        if not isinstance(opname, str):
            raise TypeError(f"the first argument of g.op is the name of an operator, not {shown(opname)}")
        domain, _, op_type = opname.rpartition("::")
        if domain in ("aten", "prim", "quantized"):
            raise NotImplementedError(f"symbolic calls {opname}, an operator of TorchScript, which ONNX does not have")
        domain = "" if domain == "onnx" else domain
        inputs = [self._input(argument) for argument in raw_args]
        attributes = _attributes(kwargs)
        standard = find("symbolic operators", opname) if opname in TABLE["symbolic operators"] else None
        results = standard(self._op, *inputs, **attributes) if standard is not None else None
        if results is None:
            results = self._op.emit(op_type, *inputs, domain=domain, outputs=outputs, **attributes)
        return self._results(results, outputs)

    def onnxscript_op(
        self, onnx_fn: onnxscript.OnnxFunction[..., Any], *raw_args: Any, outputs: int = 1, **kwargs: Any
    ) -> Any:
        """Emits a call of a function written with onnxscript, which becomes a local function of the model.

        Args:
            onnx_fn: the result of ``@onnxscript.script``.
            raw_args: the inputs, as for ``op``.
            outputs: the number of outputs of the function.
            kwargs: the attributes by name and type, as for ``op``.

        Raises:
            TypeError: ``onnx_fn`` is not an onnxscript function, or has another number of outputs.
        """
        if not isinstance(onnx_fn, onnxscript.OnnxFunction):
            raise TypeError(f"g.onnxscript_op needs a function made by onnxscript.script, not {onnx_fn!r}")
        inputs = [self._input(argument) for argument in raw_args]
        results = call_script(onnx_fn, self._op, *inputs, **_attributes(kwargs))
        count = 1 if isinstance(results, ir.Value) else len(results)
        if count != outputs:
            raise TypeError(f"{onnx_fn.name} has {count} outputs, not {outputs}")
        return self._results(results, outputs)

    def _results(self, results: Any, outputs: int) -> Any:
        return wrapped(results, self._op) if outputs == 1 else tuple(wrapped(results, self._op))

    def _input(self, argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            return self._op.constant(TorchTensor(argument.detach()).numpy(), argument.dtype)
        if isinstance(argument, (list, tuple)) and any(isinstance(item, SymbolicValue) for item in argument):
            raise TypeError("an input of g.op is a list of values, but ONNX takes one tensor for each input")
        return unwrapped(argument)

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError for the methods of TorchScript's graph that do not exist here."""
        reason = f"the graph of symbolic has op(), onnxscript_op(), original_node and opset, but no {name!r}"
        raise AttributeError(reason)


_ATTRIBUTE = re.compile(r"(.+)_([ifst])")


def _attributes(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the attributes by their ONNX names, without those that are None."""
    return dict(_attribute(key, value) for key, value in given.items() if value is not None)


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


# ---------------------------------------------------------------- values


class SymbolicValue:
    """A tensor argument of a symbolic function, or a result of ``g.op``.

    Attributes:
        value: the ONNX value.
        reads_weights: whether a parameter or a buffer is a constant, because the function asks for its values.
    """

    def __init__(self, value: ir.Value, op: Emitter) -> None:
        self.value, self.reads_weights = value, False
        self._op = op

    # The functions of torch.onnx that a symbolic function calls, such as JitScalarType.from_value, ask for the class.
    __class__ = property(lambda self: torch.Value)

    def type(self) -> SymbolicType:
        """Returns the dtype and the sizes of the tensor, each None if unknown."""
        sizes = known_sizes(self.value)
        dtype = None if self.value.dtype is None else dtypes.torch_dtype(self.value.dtype)
        return SymbolicType(dtype, None if sizes is None else list(sizes))

    def setType(self, type: SymbolicType) -> SymbolicValue:
        """Sets the dtype and the sizes, which ONNX cannot infer for other domains; returns the value."""
        producer = self.value.producer()
        is_inferred = producer is not None and not producer.domain and self.value.dtype is not None
        if (dtype := type.dtype()) is not None and not is_inferred:
            self.value.type = ir.TensorType(dtypes.onnx_dtype(dtype))
        if (sizes := type.sizes()) is not None:
            self._op.with_sizes(self.value, sizes)
        return self

    def node(self) -> SymbolicNode:
        """Returns the node that computes the value."""
        return SymbolicNode(self.value, self._op, self.constant())

    def debugName(self) -> str:
        """Returns the name of the value, which may still change."""
        return str(self.value.name)

    def isCompleteTensor(self) -> bool:
        """Returns whether the dtype and all sizes are known, and no size is dynamic."""
        sizes = self.type().sizes()
        return self.value.dtype is not None and sizes is not None and all(isinstance(size, int) for size in sizes)

    def constant(self) -> torch.Tensor | None:
        """Returns the tensor of a constant; None if the value depends on inputs, or is a weight that is not read."""
        producer = self.value.producer()
        if producer is not None:
            value = producer.attributes.get("value") if producer.op_type == "Constant" else None
            tensor = None if value is None else value.as_tensor()
        else:
            is_weight = self.value.metadata_props.get(metadata.INPUT_KIND) in _WEIGHTS
            tensor = self.value.const_value if self.reads_weights or not is_weight else None
        return None if tensor is None else as_torch(tensor).clone()  # the function may write to it

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError for the methods of TorchScript's values that do not exist here."""
        reason = f"a value of symbolic has type(), setType(), node() and debugName(), but no {name!r}"
        raise AttributeError(reason)


_WEIGHTS = (InputKind.PARAMETER.name, InputKind.BUFFER.name)


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
        return None if self._dtype is None else JitScalarType.from_dtype(self._dtype).scalar_name()

    def sizes(self) -> list[Any] | None:
        """Returns the sizes; a dynamic size is a SymInt, whose value nodes compute."""
        return None if self._sizes is None else list(self._sizes)

    def varyingSizes(self) -> list[int | None] | None:
        """Returns the sizes; a dynamic size is None."""
        return None if self._sizes is None else [size if isinstance(size, int) else None for size in self._sizes]

    def dim(self) -> int | None:
        """Returns the number of dimensions."""
        return None if self._sizes is None else len(self._sizes)

    def with_sizes(self, sizes: Sequence[Any] | None) -> SymbolicType:
        """Returns the type with other sizes; a list that contains None makes the sizes unknown."""
        return replace(self, _sizes=None if sizes is None or None in sizes else list(sizes))

    def with_dtype(self, dtype: torch.dtype) -> SymbolicType:
        """Returns the type with another dtype."""
        return replace(self, _dtype=dtype)

    def kind(self) -> str:
        """Returns ``TensorType``, because all values of the graph are tensors."""
        return "TensorType"

    def isSubtypeOf(self, other: Any) -> bool:
        """Returns whether ``other`` is TorchScript's type of tensors."""
        return type(other).__name__ == "TensorType" or isinstance(other, SymbolicType)


# ---------------------------------------------------------------- nodes


class SymbolicNode:
    """The node that computes a value.

    An input or a weight has a node of kind ``prim::Param``, as in TorchScript.
    """

    __class__ = property(lambda self: torch.Node)  # as for a value

    def __init__(self, value: ir.Value, op: Emitter, constant: torch.Tensor | None) -> None:
        self._value = value
        self._op = op
        self._constant = constant
        self._node = value.producer()

    def kind(self) -> str:
        """Returns ``onnx::Add``, ``com.microsoft::Gelu``, ``onnx::Constant`` or ``prim::Param``."""
        if self._constant is not None:
            return "onnx::Constant"
        return "prim::Param" if self._node is None else f"{self._node.domain or 'onnx'}::{self._node.op_type}"

    def mustBeNone(self) -> bool:
        """Returns False, because an argument that is None is None itself."""
        return False

    def inputs(self) -> list[SymbolicValue | None]:
        """Returns the inputs; None is an optional input that was left out."""
        return [] if self._node is None else [wrapped(value, self._op) for value in self._node.inputs]

    def outputs(self) -> list[SymbolicValue]:
        """Returns the outputs."""
        values = [self._value] if self._node is None else self._node.outputs
        return [SymbolicValue(value, self._op) for value in values]

    def output(self) -> SymbolicValue:
        """Returns the only output."""
        (output,) = self.outputs()
        return output

    def attributeNames(self) -> list[str]:
        """Returns the names of the attributes."""
        return list(self._attribute_values())

    def hasAttribute(self, name: str) -> bool:
        """Returns whether the node has the attribute."""
        return name in self._attribute_values()

    def __getitem__(self, name: str) -> Any:
        """Returns the value of an attribute.

        Raises:
            KeyError: the node has no such attribute.
        """
        return self._attribute_values()[name]

    def _attribute_values(self) -> dict[str, Any]:
        if self._constant is not None:
            return {"value": self._constant}
        return {} if self._node is None else {name: attr.value for name, attr in self._node.attributes.items()}

    def kindOf(self, name: str) -> str:
        """Returns the accessor of an attribute, such as ``fs`` for a list of numbers."""
        if self._constant is not None:
            return "t"
        kind = self._node.attributes[name].type.name if self._node is not None else name
        return kind[0].lower() + "s" * kind.endswith("S")

    def sourceRange(self) -> str:
        """Returns no text: the message of an error names the line of the call."""
        return ""

    i = f = s = t = is_ = fs = ss = __getitem__

    def __getattr__(self, name: str) -> Any:
        """Returns the accessor ``is``, which is a keyword of Python; raises AttributeError for other names."""
        if name == "is":
            return self.__getitem__
        raise AttributeError(f"a node of symbolic has kind(), inputs(), outputs() and attributes, but no {name!r}")


@dataclass(frozen=True)
class Call:
    """The call that a symbolic function translates: ``g.original_node``.

    For an autograd.Function it has what TorchScript's ``prim::PythonOp`` has.

    Attributes:
        target: the operator or the autograd.Function.
        arguments: all arguments, in order; tensors are symbolic values.
        results: the fake results.
    """

    target: Any
    arguments: tuple[Any, ...]
    results: tuple[Any, ...]

    def kind(self) -> str:
        """Returns the name of the operator, such as ``aten::relu``, or ``prim::PythonOp``."""
        return "prim::PythonOp" if isinstance(self.target, type) else str(self.target._schema.name)

    def pyname(self) -> str:
        """Returns the name of the autograd.Function."""
        return str(self.target.__name__)

    def pyobj(self) -> Any:
        """Returns the autograd.Function."""
        return self.target

    def cconv(self) -> str:
        """Returns one letter for each argument: ``d`` for a tensor, ``c`` for any other object."""
        return "".join("d" if isinstance(argument, SymbolicValue) else "c" for argument in self.arguments)

    def scalar_args(self) -> list[Any]:
        """Returns the arguments that are not tensors."""
        return [argument for argument in self.arguments if not isinstance(argument, SymbolicValue)]

    def inputs(self) -> list[SymbolicValue]:
        """Returns the arguments that are tensors."""
        return [argument for argument in self.arguments if isinstance(argument, SymbolicValue)]

    def outputs(self) -> list[CallOutput]:
        """Returns the results, each with its type."""
        return [CallOutput(result) for result in self.results if isinstance(result, torch.Tensor)]

    def outputsSize(self) -> int:
        """Returns the number of results."""
        return len(self.outputs())


@dataclass(frozen=True)
class CallOutput:
    """A result of the call that is translated."""

    _fake: torch.Tensor

    def type(self) -> SymbolicType:
        """Returns the dtype and the sizes."""
        return SymbolicType(self._fake.dtype, list(self._fake.shape))
