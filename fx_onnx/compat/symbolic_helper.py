"""The helpers that symbolic functions written for ``torch.onnx.symbolic_helper`` use.

In a symbolic function of fx_onnx, a tensor is a value, and every other argument is already a Python object. So most
helpers return a Python object as it is, and read a value only if it is a constant.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import torch

from fx_onnx.compat.jit_scalar_type import JitScalarType
from fx_onnx.compat.symbolic_graph import GraphContext, SymbolicNode, SymbolicValue
from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError, TranslationError
from fx_onnx.sizes.symbolic_sizes import SymbolicNumber

__all__ = [
    "_generate_wrapped_number",
    "_get_const",
    "_get_tensor_dim_size",
    "_get_tensor_rank",
    "_get_tensor_sizes",
    "_is_bool",
    "_is_constant",
    "_is_fp",
    "_is_list",
    "_is_none",
    "_is_packed_list",
    "_is_scalar_list",
    "_is_tensor",
    "_is_tensor_list",
    "_is_value",
    "_maybe_cast_to_type",
    "_maybe_get_const",
    "_maybe_get_scalar",
    "_node_get",
    "_numel_helper",
    "_onnx_opset_unsupported",
    "_onnx_opset_unsupported_detailed",
    "_onnx_unsupported",
    "_optional_input_placeholder_tensor",
    "_parse_arg",
    "_reducesum_helper",
    "_reshape_helper",
    "_scalar",
    "_select_helper",
    "_size_helper",
    "_slice_helper",
    "_sort_helper",
    "_squeeze_helper",
    "_topk_helper",
    "_try_get_scalar_type",
    "_type_promote_from_values",
    "_unimplemented",
    "_unpack_list",
    "_unsqueeze_helper",
    "args_have_same_dtype",
    "cast_pytorch_to_onnx",
    "check_training_mode",
    "dequantize_helper",
    "is_complex_value",
    "parse_args",
    "pytorch_name_to_type",
    "quantize_helper",
    "quantized_args",
    "requantize_bias_helper",
    "scalar_name_to_pytorch",
    "scalar_type_to_onnx",
    "scalar_type_to_pytorch_type",
]

Symbolic = TypeVar("Symbolic", bound=Callable[..., Any])

scalar_type_to_pytorch_type = [kind.dtype() for kind in JitScalarType if kind is not JitScalarType.UNDEFINED]
"""The dtype of each of TorchScript's numbers of dtypes."""
scalar_type_to_onnx = [kind.onnx_type() for kind in JitScalarType if kind is not JitScalarType.UNDEFINED]
"""The ONNX element type of each of TorchScript's numbers of dtypes."""
cast_pytorch_to_onnx = {kind.scalar_name(): kind.onnx_type() for kind in JitScalarType}
"""The ONNX element type of each of TorchScript's names of dtypes, such as ``Long``."""
pytorch_name_to_type = {kind.scalar_name(): kind for kind in JitScalarType}
"""The scalar type of each of TorchScript's names of dtypes."""
scalar_name_to_pytorch = {kind.torch_name(): kind.scalar_name() for kind in JitScalarType}
"""TorchScript's name of each dtype by the name that C++ has, such as ``int64_t``."""


# ---------------------------------------------------------------- decorators


def parse_args(*arg_descriptors: str) -> Callable[[Symbolic], Symbolic]:
    """Returns a decorator that converts the arguments of a symbolic function.

    Args:
        arg_descriptors: one for each argument after ``g``: ``v`` keeps it; ``i``, ``f``, ``b``, ``s`` convert to a
            number, a bool or a string; ``is`` and ``fs`` to a list; ``t`` to a tensor; ``none`` ignores it.

    Raises:
        ArgumentError: there is no such descriptor.
        TranslationError: (from the decorated function) an argument that must be a constant depends on the inputs.
    """
    known = ("v", "t", "none", "is", "fs", *_CONVERSIONS)
    for descriptor in arg_descriptors:
        if descriptor not in known:
            raise ArgumentError(f"parse_args takes the descriptors {', '.join(known)}, not {shown(descriptor)}.")

    def decorate(function: Symbolic) -> Symbolic:
        names = list(inspect.signature(function).parameters)[1:]
        names += [f"argument {index}" for index in range(len(names), len(arg_descriptors))]

        @functools.wraps(function)
        def parsed(g: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) > len(arg_descriptors):
                raise TypeError(f"{function.__name__} got {len(args)} arguments for {len(arg_descriptors)} descriptors")
            converted = (
                _parse_arg(argument, descriptor, name, function.__name__)
                for argument, descriptor, name in zip(args, arg_descriptors, names, strict=False)
            )
            return function(g, *converted, **kwargs)

        return parsed  # type: ignore[return-value]

    return decorate


def quantized_args(
    *arg_q_descriptors: bool,
    scale: float | None = None,
    zero_point: int | None = None,
    quantize_output: bool = True,
) -> Callable[[Symbolic], Symbolic]:
    """Returns a decorator that returns the function as it is.

    A program of torch.export has no quantized tensors: PT2E quantization has operators that quantize and dequantize, so
    no argument of a symbolic function is quantized.
    """

    def decorate(function: Symbolic) -> Symbolic:
        return function

    return decorate


# ---------------------------------------------------------------- constants


def _parse_arg(value: Any, desc: str, arg_name: str | None = None, node_name: str | None = None) -> Any:
    """Returns an argument converted as its descriptor says; see ``parse_args``.

    Raises:
        TranslationError: the argument is not a constant.
    """
    if desc in ("v", "none") or value is None:
        return value
    if isinstance(value, SymbolicValue):
        value.reads_weights = True
        constant = value.constant()
        if constant is None:
            raise TranslationError(
                f"{_argument(arg_name, node_name)} must be a constant, but it depends on the inputs."
            )
        value = constant
    if desc == "t":
        return value if isinstance(value, torch.Tensor) else torch.tensor(_known(value, arg_name, node_name))
    value = _known(value.tolist() if isinstance(value, torch.Tensor) else value, arg_name, node_name)
    if desc in ("is", "fs"):
        items = value if isinstance(value, (list, tuple)) else [value]
        return [_CONVERSIONS[desc[0]](item) for item in items]
    return _CONVERSIONS[desc](value)


def _known(value: Any, arg_name: str | None, node_name: str | None) -> Any:
    """Returns numbers after checking that none of them is a dynamic size, which a conversion would make static."""
    items = value if isinstance(value, (list, tuple)) else [value]
    for item in items:
        if isinstance(item, (SymbolicValue, *SymbolicNumber)):
            raise TranslationError(
                f"{_argument(arg_name, node_name)} must be a constant, but it is the dynamic {item}."
            )
    return value


def _argument(arg_name: str | None, node_name: str | None) -> str:
    return f"The argument {arg_name or 'of a symbolic function'}{f' of {node_name}' if node_name else ''}"


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {"i": int, "f": float, "b": bool, "s": str}


def _get_const(value: Any, desc: str, arg_name: str) -> Any:
    """Returns a constant argument converted as the descriptor says.

    Raises:
        TranslationError: the argument is not a constant.
    """
    return _parse_arg(value, desc, arg_name)


def _maybe_get_const(value: Any, descriptor: str) -> Any:
    """Returns a constant value converted as the descriptor says; every other argument as it is."""
    return _parse_arg(value, descriptor) if isinstance(value, SymbolicValue) and _is_constant(value) else value


def _maybe_get_scalar(value: Any) -> Any:
    """Returns a constant 0-d value as a tensor; every other argument as it is."""
    constant = _maybe_get_const(value, "t")
    return constant if isinstance(constant, torch.Tensor) and constant.dim() == 0 else value


def _scalar(x: Any) -> Any:
    """Returns the number in a 0-d tensor; None for everything else."""
    return x.item() if isinstance(x, torch.Tensor) and x.dim() == 0 else None


def _node_get(node: SymbolicNode, key: str) -> Any:
    """Returns the value of an attribute of a node."""
    return node[key]


def _unpack_list(list_value: Any) -> list[Any]:
    """Returns the elements of a list argument."""
    return list(list_value)


# ---------------------------------------------------------------- kinds of arguments


def _is_value(x: Any) -> bool:
    """Returns whether an argument is a tensor of the model."""
    return isinstance(x, SymbolicValue)


def _is_none(x: Any) -> bool:
    """Returns whether an optional argument is absent."""
    return x is None


def _is_constant(value: Any) -> bool:
    """Returns whether an argument is a Python object or a constant of the graph."""
    return not isinstance(value, SymbolicValue) or value.constant() is not None


_is_tensor = _is_value


def _is_packed_list(list_value: Any) -> bool:
    """Returns whether an argument is a list."""
    return isinstance(list_value, (list, tuple))


_is_list = _is_packed_list


def _is_tensor_list(x: Any) -> bool:
    """Returns whether an argument is a list of tensors."""
    return isinstance(x, (list, tuple)) and bool(x) and all(isinstance(item, SymbolicValue) for item in x)


def _is_scalar_list(x: Any) -> bool:
    """Returns whether an argument is a list of numbers."""
    return isinstance(x, (list, tuple)) and not any(isinstance(item, SymbolicValue) for item in x)


def _is_fp(value: Any) -> bool:
    """Returns whether the elements of a value are real floating-point numbers."""
    kind = _try_get_scalar_type(value)
    return kind is not None and kind.dtype().is_floating_point


def _is_bool(value: Any) -> bool:
    """Returns whether the elements of a value are booleans."""
    return _try_get_scalar_type(value) is JitScalarType.BOOL


def is_complex_value(x: Any) -> bool:
    """Returns whether the elements of a value are complex numbers."""
    kind = _try_get_scalar_type(x)
    return kind is not None and kind.dtype().is_complex


def _get_tensor_rank(x: SymbolicValue) -> int | None:
    """Returns the number of dimensions, if it is known."""
    return x.type().dim() if isinstance(x, SymbolicValue) else None


def _get_tensor_sizes(x: SymbolicValue, allow_nonstatic: bool = True) -> list[int | None] | None:
    """Returns the sizes; a dynamic size is None, or makes the result None if ``allow_nonstatic`` is False."""
    sizes = x.type().varyingSizes() if isinstance(x, SymbolicValue) else None
    return None if sizes is None or (None in sizes and not allow_nonstatic) else sizes


def _get_tensor_dim_size(x: SymbolicValue, dim: int) -> int | None:
    """Returns the size of one dim; None if it is dynamic or not known."""
    sizes = _get_tensor_sizes(x)
    return sizes[dim] if sizes else None


def _try_get_scalar_type(*args: Any) -> JitScalarType | None:
    """Returns the scalar type of the first argument that has one."""
    for argument in args:
        kind = JitScalarType.from_value(argument, JitScalarType.UNDEFINED)
        if kind is not JitScalarType.UNDEFINED:
            return kind
    return None


def _type_promote_from_values(*args: Any) -> JitScalarType:
    """Returns the scalar type to which torch promotes the dtypes of the arguments; UNDEFINED if none is known."""
    types = [kind.dtype() for argument in args if (kind := _try_get_scalar_type(argument)) is not None]
    if not types:
        return JitScalarType.UNDEFINED
    return JitScalarType.from_dtype(functools.reduce(torch.promote_types, types))


def args_have_same_dtype(args: Sequence[Any]) -> bool:
    """Returns whether all values have the same dtype."""
    return len({_try_get_scalar_type(argument) for argument in args}) <= 1


# ---------------------------------------------------------------- refusals


def _unimplemented(op: str, msg: str, value: Any = None) -> NoReturn:
    """Raises OnnxExporterError: the symbolic function does not support the call."""
    _onnx_unsupported(f"{op}, {msg}", value)


def _onnx_unsupported(op_name: str, value: Any = None) -> NoReturn:
    """Raises OnnxExporterError: the symbolic function does not support the operator."""
    message = f"The symbolic function does not support {op_name}."
    raise OnnxExporterError(message)


def _onnx_opset_unsupported(op_name: str, current_opset: int, supported_opset: int, value: Any = None) -> NoReturn:
    """Raises OnnxExporterError: the operator needs a newer opset."""
    _onnx_opset_unsupported_detailed(op_name, current_opset, supported_opset, "", value)


def _onnx_opset_unsupported_detailed(
    op_name: str, current_opset: int, supported_opset: int, reason: str, value: Any = None
) -> NoReturn:
    """Raises OnnxExporterError: the operator needs a newer opset, for the given reason."""
    because = f" ({reason.rstrip('.')})" if reason else ""
    message = f"{op_name} needs opset {supported_opset}, not {current_opset}{because}."
    raise OnnxExporterError(message)


# ---------------------------------------------------------------- nodes


def _integers(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def _maybe_cast_to_type(g: GraphContext, value: Any, jit_type: JitScalarType) -> Any:
    """Returns a value cast to a scalar type, if it has another one."""
    same = JitScalarType.from_value(value, JitScalarType.UNDEFINED) == jit_type
    return value if same else g.op("Cast", value, to_i=jit_type.onnx_type())


def _generate_wrapped_number(g: GraphContext, scalar: Any) -> Any:
    """Returns a number as a 0-d constant: float64 for a float, int64 for an int."""
    return g.op("Constant", value_t=torch.tensor(scalar, dtype=torch.float64 if isinstance(scalar, float) else None))


def _optional_input_placeholder_tensor(g: GraphContext) -> None:
    """Returns None, which leaves out an optional input."""
    return


def _reshape_helper(g: GraphContext, input: Any, shape: Any, allowzero: int = 0) -> Any:
    """Returns the tensor reshaped to a list of numbers or to a value; a size of 0 keeps the size unless allowed."""
    return g.op("Reshape", input, list(shape) if isinstance(shape, (list, tuple)) else shape, allowzero_i=allowzero)


def _unsqueeze_helper(g: GraphContext, input: Any, axes_i: Sequence[int]) -> Any:
    """Returns the tensor with new dims of size 1."""
    return g.op("Unsqueeze", input, list(axes_i))


def _squeeze_helper(g: GraphContext, input: Any, axes_i: Sequence[int]) -> Any:
    """Returns the tensor without the given dims."""
    return g.op("Squeeze", input, list(axes_i))


def _reducesum_helper(
    g: GraphContext,
    input: Any,
    axes_i: Sequence[int] | None = None,
    keepdims_i: int = 1,
    noop_with_empty_axes_i: int = 0,
) -> Any:
    """Returns the sum over the given dims, or over all."""
    axes = None if axes_i is None else list(axes_i)
    return g.op("ReduceSum", input, axes, keepdims_i=keepdims_i, noop_with_empty_axes_i=noop_with_empty_axes_i)


def _select_helper(g: GraphContext, self: Any, dim: int, index: Any, apply_reshape: bool = True) -> Any:
    """Returns the slices at an index along a dim; a number keeps the dim, with size 1."""
    constant = _maybe_get_scalar(index)
    if not _is_value(constant):
        index = _integers(int(constant))
    elif apply_reshape and _get_tensor_rank(index) == 0:
        index = _reshape_helper(g, index, [1])
    if _is_value(index) and _try_get_scalar_type(index) not in (JitScalarType.INT64, JitScalarType.INT):
        index = g.op("Cast", index, to_i=JitScalarType.INT64.onnx_type())
    return g.op("Gather", self, index, axis_i=dim)


def _slice_helper(g: GraphContext, input: Any, axes: Any, starts: Any, ends: Any, steps: Any = None) -> Any:
    """Returns the elements from ``starts`` to ``ends`` along ``axes``, each a list of numbers or a value."""
    return g.op("Slice", input, starts, ends, axes, steps)


def _size_helper(g: GraphContext, self: Any, dim: Any) -> Any:
    """Returns the size of a dim as a 1-d tensor of int64 if ``dim`` is a number or has one dim."""
    return g.op("Gather", g.op("Shape", self), dim if _is_value(dim) else _integers(int(dim)), axis_i=0)


def _numel_helper(g: GraphContext, self: Any) -> Any:
    """Returns the number of elements as a 0-d tensor of int64."""
    return g.op("Size", self)


def _topk_helper(
    g: GraphContext, input: Any, k: Any, dim: int, largest: bool = True, sorted: bool = False, out: Any = None
) -> Any:
    """Returns the ``k`` largest or smallest elements along a dim, and their indices."""
    if out is not None:
        _unimplemented("TopK", "the argument out")
    is_value = _is_value(k)
    count = _maybe_cast_to_type(g, _reshape_helper(g, k, [1]), JitScalarType.INT64) if is_value else _integers(int(k))
    return g.op("TopK", input, count, axis_i=dim, largest_i=largest, sorted_i=sorted, outputs=2)


def _sort_helper(g: GraphContext, input: Any, dim: int, descending: bool = True, out: Any = None) -> Any:
    """Returns the sorted elements along a dim, and their indices."""
    if out is not None:
        _unimplemented("Sort", "the argument out")
    return _topk_helper(g, input, _size_helper(g, input, dim), dim, largest=descending, sorted=True)


# ---------------------------------------------------------------- training and quantization


def check_training_mode(op_train_mode: int, op_name: str) -> None:
    """Does nothing: the capture has the mode of each module, so the mode of the export cannot contradict it."""


def quantize_helper(g: GraphContext, tensor: Any, scale: Any, zero_point: Any, axis: Any = None) -> tuple[Any, ...]:
    """Returns a quantized tensor as (values, scale, zero point), with the axis if each of its indices has its own."""
    scale = _maybe_cast_to_type(g, scale, JitScalarType.FLOAT)
    if _try_get_scalar_type(zero_point) not in (JitScalarType.UINT8, JitScalarType.INT8):
        zero_point = g.op("Cast", zero_point, to_i=JitScalarType.UINT8.onnx_type())
    values = g.op("QuantizeLinear", tensor, scale, zero_point, axis_i=_get_const(axis, "i", "axis"))
    return (values, scale, zero_point, *(() if axis is None else (axis,)))


def dequantize_helper(g: GraphContext, qtensor: Any, qdtype: int | None = None) -> tuple[Any, Any, Any, Any]:
    """Returns (real values, scale, zero point, axis or None) of a quantized tensor, which ``quantize_helper`` made."""
    values, scale, zero_point, axis = (*qtensor, None)[:4]
    kind = JitScalarType.from_value(values) if qdtype is None else JitScalarType.from_onnx_type(qdtype)
    values, zero_point = (_maybe_cast_to_type(g, part, kind) for part in (values, zero_point))
    scale = _maybe_cast_to_type(g, scale, JitScalarType.FLOAT)
    real = g.op("DequantizeLinear", values, scale, zero_point, axis_i=_get_const(axis, "i", "axis"))
    return real, scale, zero_point, axis


def requantize_bias_helper(
    g: GraphContext, bias: Any, input_scale: Any, weight_scale: Any, axis: Any = None
) -> tuple[Any, ...]:
    """Returns a bias as int32 at the product of two scales: (values, scale, zero point), and the axis if any."""
    scale = g.op("Mul", weight_scale, input_scale)
    zero_point = g.op("ConstantOfShape", g.op("Shape", scale), value_t=torch.zeros(1, dtype=torch.int32))
    values = g.op("Cast", g.op("Div", bias, scale), to_i=JitScalarType.INT.onnx_type())
    return (values, scale, zero_point, *(() if axis is None else (axis,)))
