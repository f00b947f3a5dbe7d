"""Runs the operations of a TorchScript graph in Python: ATen operators through torch.ops, the rest as Python code.

Under torch.export the operators are recorded, and the Python code is not: lists, tuples, objects, conditions on known
values and loops with a known number of iterations leave no trace in the captured program. Conditions and loops that
depend on data are in data_dependent.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.traceback import set_stack_trace

from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.sizes.symbolic_sizes import expression, is_data_dependent, static
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import pytree
from fx_onnx.torchscript import data_dependent
from fx_onnx.torchscript.data_dependent import Region, ScriptRaise
from fx_onnx.torchscript.python_operators import (
    NUMBER_TENSOR_OPERATORS,
    OPERATORS_ON_ANY_VALUE,
    PYTHON_OPERATORS,
    has_appended,
    on_grown_list,
)
from fx_onnx.torchscript.script_graph import APPENDING, Block, GraphReader, Operation
from fx_onnx.torchscript.script_private import set_script_line
from fx_onnx.torchscript.script_values import (
    DTYPES,
    LAYOUTS,
    MEMORY_FORMATS,
    Instance,
    ScalarTensor,
    StoredConstant,
    Uninitialized,
    as_tensor,
    known_bool,
    number_dtype,
)

__all__ = ["Interpreter"]

# The types of schema arguments that TorchScript passes as numbers, and the values of the numbers.
_ENUMERATIONS: dict[str, Sequence[Any]] = {"ScalarType": DTYPES, "Layout": LAYOUTS, "MemoryFormat": MEMORY_FORMATS}

# Operators that PyTorch keeps for old traces: the operator to call, and how many of the arguments it takes.
_OLD_OPERATORS: dict[str, tuple[Any, int]] = {"aten::_convolution": (aten.convolution.default, 9)}

_WITHOUT_EFFECT = ("prim::Print", "aten::warn", "aten::_assert", "prim::AddStatValue", "prim::TimePoint")


class Interpreter:
    """Runs blocks.

    Attributes:
        reader: Reads the methods of TorchScript classes.
        regions: The branches and loop bodies that are being captured, from the outermost to the innermost.
        training: Whether the last forward ran in training mode.
    """

    def __init__(self, reader: GraphReader) -> None:
        self.reader = reader
        self.regions: list[Region] = []
        self.training = False

    def run(
        self,
        block: Block,
        arguments: Sequence[Any],
        outer: Mapping[int, Any] | None = None,
        region: Region | None = None,
    ) -> list[Any]:
        """Runs a block and returns its results.

        Args:
            block: The block.
            arguments: The values of its parameters.
            outer: The values of the surrounding blocks, by number.
            region: The region that the block is the body of.
        """
        values = {**(outer or {}), **dict(zip(block.parameters, arguments, strict=True))}
        before, self.regions = self.regions, [*self.regions, region] if region else self.regions
        try:
            for operation in block.operations:
                results = self._run_operation(operation, values)
                values.update(zip(operation.outputs, results, strict=True))
        except Exception as error:
            if operation.source.file and not hasattr(error, "script_source"):
                error.script_source = operation.source  # type: ignore[attr-defined]
            raise
        finally:
            self.regions = before
        return [values[number] for number in block.results]

    def callee(self, operation: Operation, arguments: Sequence[Any]) -> tuple[Block, Sequence[Any]]:
        """Returns the body of the function or method that an operation calls, and the arguments of the body."""
        if operation.kind == "prim::fork":
            return operation.attributes["Subgraph"], arguments
        if operation.kind == "prim::CallFunction":
            return self.reader.called(operation), arguments[1:]
        owner = arguments[0]
        if isinstance(owner, Instance) and owner.module is not None:
            return owner.module.method(operation.attributes["name"]), arguments
        return self.reader.called(operation), arguments

    # --- operations

    def _run_operation(self, operation: Operation, values: dict[int, Any]) -> Sequence[Any]:
        arguments = [values[number] for number in operation.inputs]
        self._at(operation)
        if operation.blocks and operation.kind in ("prim::If", "prim::Loop"):
            return (self._branch if operation.kind == "prim::If" else self._loop)(operation, arguments, values)
        return _SPECIAL.get(operation.kind, Interpreter._call_operator)(self, operation, arguments)

    def _at(self, operation: Operation) -> None:
        """Tells torch the line of the model, which is the place of the nodes and guards that follow.

        TorchScript generates operations without a line, such as the length of a range. The line before is theirs too.
        """
        if operation.source.file:
            set_stack_trace([operation.source.stack_trace()])
            set_script_line(operation.source.file, operation.source.line)

    def _branch(self, operation: Operation, arguments: list[Any], values: dict[int, Any]) -> Sequence[Any]:
        known = known_bool(arguments[0])
        if known is None:
            results = [None] * len(operation.outputs)
            return data_dependent.Branch(self, operation, values, results).run(arguments[0])
        return self.run(operation.blocks[0 if known else 1], (), values)

    def _loop(self, operation: Operation, arguments: list[Any], values: dict[int, Any]) -> Sequence[Any]:
        """Runs iterations as long as the condition is known; the remaining ones become a loop of the program.

        If a loop over a dynamic dim cannot be a loop of the program, the dim becomes static.
        """
        count, *state = arguments  # the condition and the carried values
        done = 0
        while True:
            self._at(operation)
            known, count = known_bool(state[0]), static(count)
            is_symbolic = isinstance(count, torch.SymInt)
            if known is False or (not is_symbolic and done >= count):
                return state[1:]
            if known is None or is_symbolic:
                try:
                    loop = data_dependent.Loop(self, operation, values, state)
                    loop.find_state(count)
                except RuntimeError:
                    if known is None or is_data_dependent(expression(count)):
                        raise
                    self._at(operation)
                    count = int(count)  # torch records a guard, and the export warns with its place
                    continue
                return loop.run(done, count)
            state = self.run(operation.blocks[0], [done, *state[1:]], values)
            done += 1

    def _call_operator(self, operation: Operation, arguments: list[Any]) -> Sequence[Any]:
        kind = operation.kind
        if kind not in APPENDING and any(map(has_appended, arguments)):
            return [on_grown_list(operation, arguments)][: len(operation.outputs)]
        result = self._call_python(operation, arguments)
        if result is NotImplemented:
            result = self._call_torch(operation, arguments)
        if len(operation.outputs) == 1:
            return [list(result) if isinstance(result, torch.Size) else result]
        return result if operation.outputs else []

    def _call_python(self, operation: Operation, arguments: list[Any]) -> Any:
        """Calls the operator if it works on Python values; otherwise returns NotImplemented."""
        kind = operation.kind
        if kind in OPERATORS_ON_ANY_VALUE:
            return OPERATORS_ON_ANY_VALUE[kind](*arguments)
        function = PYTHON_OPERATORS.get(kind)
        tensors = [argument for argument in arguments if isinstance(argument, (torch.Tensor, ScalarTensor))]
        on_container = bool(arguments) and isinstance(arguments[0], (list, dict, str))
        if function is not None and (not tensors or on_container):
            result = function(*arguments)
            is_float = kind in ("aten::pow", "aten::div") and operation.types[0].kind() == "FloatType"
            return torch.sym_float(result) if is_float else result
        on_numbers = NUMBER_TENSOR_OPERATORS.get(kind)
        if on_numbers is not None and all(_is_known_integer(tensor, kind) for tensor in tensors):
            return on_numbers(*arguments)
        return NotImplemented

    def _call_torch(self, operation: Operation, arguments: list[Any]) -> Any:
        if not operation.schema:
            raise CaptureError(
                f"The TorchScript operator {operation.kind} is not supported{operation.source}; remove it from the "
                "model, or export the Python module that the model was made from.",
                id=MessageId.TORCHSCRIPT,
            )
        target, parameters = _operator(operation.schema)
        if operation.kind in _OLD_OPERATORS:
            target, count = _OLD_OPERATORS[operation.kind]
            arguments = arguments[:count]
        given = {}
        for (name, values, is_written), value in zip(parameters, arguments, strict=False):
            if isinstance(value, ScalarTensor) and is_written:
                value.tensor = value.as_tensor()
            given[name] = _as_torch(value, values)
        return target(**given)


def _is_known_integer(value: Any, kind: str) -> bool:
    """Returns whether ``value`` is a known integer as a 0-d tensor, or a quotient that ``aten::floor`` rounds."""
    is_number = isinstance(value, ScalarTensor) and value.tensor is None
    return is_number and (not value.dtype.is_floating_point or kind == "aten::floor")


@functools.lru_cache(maxsize=4096)
def _operator(schema: str) -> tuple[Any, list[tuple[str, Sequence[Any] | None, bool]]]:
    """Returns the operator of a schema, and of each argument the name, the enumeration and whether it is written to."""
    match = re.match(r"([\w.]+)::(\w+)(?:\.(\w+))?\(", schema)
    if match is None:
        raise CaptureError(
            f"The schema of a TorchScript operator has an unknown form: {schema}.", id=MessageId.TORCHSCRIPT
        )
    target = getattr(getattr(getattr(torch.ops, match[1]), match[2]), match[3] or "default")
    parameters = []
    for argument in target._schema.arguments:
        enumeration = re.sub(r"Optional\[(\w+)\]", r"\1", str(argument.real_type))
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        parameters.append((argument.name, _ENUMERATIONS.get(enumeration), is_written))
    return target, parameters


def _as_torch(value: Any, enumeration: Sequence[Any] | None) -> Any:
    """Returns a value in the form that torch.ops accepts."""
    if enumeration is not None and isinstance(value, int):
        return enumeration[value]
    return list(map(as_tensor, value)) if isinstance(value, list) else as_tensor(value)


# --- operators without an ATen operator -------------------------------------------------------------------------------


def _call(interpreter: Interpreter, operation: Operation, arguments: list[Any]) -> Sequence[Any]:
    if operation.kind == "prim::CallMethod" and operation.attributes["name"] == "forward" and arguments[0].module:
        return [arguments[0].module(*arguments)]
    return interpreter.run(*interpreter.callee(operation, arguments))


def _constant(interpreter: Interpreter, operation: Operation, arguments: list[Any]) -> Sequence[Any]:
    value = operation.attributes.get("value")
    if isinstance(value, StoredConstant):
        value = value.module.attribute(value.name)
        for region in interpreter.regions:
            value = region.enter(value)
    return [value]


def _raise(interpreter: Interpreter, operation: Operation, arguments: list[Any]) -> Sequence[Any]:
    message = str(arguments[0]).removeprefix("AssertionError: ")
    raise ScriptRaise(f"{message}{operation.source}")


def _has_type(value: Any, kind: Any) -> bool:
    """Returns whether a value has a TorchScript type."""
    name = kind.kind()
    inner = list(kind.containedTypes()) if hasattr(kind, "containedTypes") else []
    if name == "OptionalType":
        return value is None or _has_type(value, kind.getElementType())
    if name == "ListType":
        return isinstance(value, list) and all(_has_type(item, inner[0]) for item in value)
    if name == "DictType":
        return isinstance(value, dict)
    if name == "TupleType":
        same = isinstance(value, tuple) and len(value) == len(inner)
        return same and all(_has_type(*pair) for pair in zip(value, inner, strict=True))
    return isinstance(value, _CLASSES[name]) and (name != "IntType" or not isinstance(value, bool))


_CLASSES: dict[str, Any] = {
    "TensorType": (torch.Tensor, ScalarTensor),
    "IntType": (int, torch.SymInt),
    "FloatType": (float, torch.SymFloat),
    "BoolType": (bool, torch.SymBool),
    "ComplexType": complex,
    "StringType": str,
    "NoneType": type(None),
    "DeviceObjType": torch.device,
    "ClassType": Instance,
    "NumberType": (int, float, complex, torch.SymInt, torch.SymFloat),
}


def _to(interpreter: Interpreter, operation: Operation, arguments: list[Any]) -> Sequence[Any]:
    """Implements ``aten::to``, whose overloads with a ``prim_`` in the name exist in TorchScript only."""
    if ".prim_" not in operation.schema:
        return interpreter._call_operator(operation, arguments)
    tensor, *rest = map(as_tensor, arguments)
    names = re.findall(r"(\w+)(?:=[^,)]+)?[,)]", operation.schema.partition(" self, ")[2])
    given: dict[str, Any] = {name: value for name, value in zip(names, rest, strict=False) if value is not None}
    if "dtype" in given:
        given["dtype"] = DTYPES[given["dtype"]]
    return [tensor.to(**given)]


def _tensor(operation: Operation, data: Any, dtype: int | None, device: Any, *_: Any) -> torch.Tensor:
    """Implements ``aten::tensor``: a tensor from a number or from nested lists of numbers, which may be symbolic."""
    return _stacked(data, {"dtype": None if dtype is None else DTYPES[dtype], "device": device})


def _stacked(data: Any, given: dict[str, Any]) -> torch.Tensor:
    symbols = (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Tensor, ScalarTensor)
    if not any(isinstance(leaf, symbols) for leaf in pytree.tree_leaves(data)):
        return torch.tensor(data, **given)
    if isinstance(data, list):
        return torch.stack([_stacked(item, given) for item in data])
    if isinstance(data, (torch.Tensor, ScalarTensor)):
        return as_tensor(data).to(**given)  # type: ignore[no-any-return]
    kinds = {torch.SymInt: torch.int64, torch.SymBool: torch.bool}
    return torch.scalar_tensor(data, **{**given, "dtype": given["dtype"] or kinds.get(type(data))})


def _computed(function: Callable[..., Any]) -> Callable[..., Sequence[Any]]:
    """Returns the operator with one result, which ``function`` computes from the operation and its arguments."""
    return lambda interpreter, operation, arguments: [function(operation, *arguments)]


_IDENTITIES = (
    "prim::unchecked_cast prim::unchecked_unwrap_optional aten::_unwrap_optional prim::profile prim::profile_ivalue "
    "prim::annotate prim::requires_grad_check prim::BailOut aten::wait aten::contiguous_format aten::detach_alias"
)

_SPECIAL: dict[str, Callable[[Interpreter, Operation, list[Any]], Sequence[Any]]] = {
    **{kind: _computed(lambda operation, value: value) for kind in _IDENTITIES.split()},
    **{kind: lambda interpreter, op, arguments: [None] * len(op.outputs) for kind in _WITHOUT_EFFECT},
    "prim::Constant": _constant,
    "prim::Uninitialized": _computed(lambda operation: Uninitialized()),
    "prim::ListConstruct": _computed(lambda operation, *items: list(items)),
    "prim::TupleConstruct": _computed(lambda operation, *items: items),
    "prim::DictConstruct": _computed(lambda operation, *items: dict(zip(items[::2], items[1::2], strict=True))),
    "prim::ListUnpack": lambda interpreter, operation, arguments: arguments[0],
    "prim::TupleUnpack": lambda interpreter, operation, arguments: arguments[0],
    "prim::TupleIndex": _computed(lambda operation, items, index: items[index]),
    "prim::TupleSlice": _computed(lambda op, items: items[op.attributes["beg"] : op.attributes["end"]]),
    "prim::CreateObject": _computed(lambda operation: Instance()),
    "prim::EnumName": _computed(lambda operation, value: value.name),
    "prim::EnumValue": _computed(lambda operation, value: value.value),
    "prim::NumToTensor": _computed(
        lambda operation, number: (
            number
            if isinstance(number, (torch.Tensor, ScalarTensor))
            else ScalarTensor(number, number_dtype(number) or torch.int64)
        )
    ),
    "prim::isinstance": _computed(lambda op, value: any(_has_type(value, wanted) for wanted in op.attributes["types"])),
    "prim::GetAttr": _computed(lambda operation, owner: owner.get(operation.attributes["name"])),
    "prim::SetAttr": lambda _, op, given: given[0].attributes.update({op.attributes["name"]: given[1]}) or [],
    "prim::CallMethod": _call,
    "prim::CallFunction": _call,
    "prim::fork": _call,
    "prim::RaiseException": _raise,
    "prim::rangelist": _computed(lambda operation, end: list(range(end))),
    "aten::to": _to,
    "aten::tensor": _computed(_tensor),
    **{
        kind: _computed(lambda operation, tensor, *rest, read=read: read(as_tensor(tensor), *rest))
        for kind, read in {
            "prim::dtype": lambda tensor: DTYPES.index(tensor.dtype),
            "prim::layout": lambda tensor: LAYOUTS.index(tensor.layout),
            "prim::device": lambda tensor: tensor.device,
            "prim::data": lambda tensor: tensor.detach(),
            "prim::shape": lambda tensor: list(tensor.shape),
            "prim::requires_grad": lambda tensor: tensor.requires_grad,
            "prim::is_cuda": lambda tensor: tensor.is_cuda,
            "prim::is_cpu": lambda tensor: tensor.device.type == "cpu",
            "prim::is_sparse": lambda tensor: tensor.is_sparse,
            "prim::is_quantized": lambda tensor: tensor.is_quantized,
            "prim::is_nested": lambda tensor: tensor.is_nested,
            "prim::is_meta": lambda tensor: tensor.is_meta,
            "prim::is_mps": lambda tensor: tensor.device.type == "mps",
            "prim::is_xpu": lambda tensor: tensor.device.type == "xpu",
            "prim::is_mkldnn": lambda tensor: tensor.is_mkldnn,
            "prim::itemsize": lambda tensor: tensor.itemsize,
            "prim::nbytes": lambda tensor: tensor.nbytes,
            "prim::ndim": lambda tensor: tensor.ndim,
            "prim::T": lambda tensor: tensor.T,
            "prim::mT": lambda tensor: tensor.mT,
            "prim::H": lambda tensor: tensor.H,
            "prim::mH": lambda tensor: tensor.mH,
            "aten::dim": lambda tensor: tensor.dim(),
            "aten::numel": lambda tensor: tensor.numel(),
            "aten::stride": lambda tensor, *dim: tensor.stride(*dim) if dim else list(tensor.stride()),
            "aten::size": lambda tensor, *dim: tensor.size(*dim) if dim else list(tensor.size()),
            "aten::is_floating_point": lambda tensor: tensor.is_floating_point(),
            "aten::is_complex": lambda tensor: tensor.is_complex(),
            "aten::cpu": lambda tensor: tensor.cpu(),
            "aten::get_device": lambda tensor: tensor.get_device(),
        }.items()
    },
}
