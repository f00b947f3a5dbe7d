"""Widens operands to a dtype that an ONNX operator admits, where ONNX lacks the dtype that torch uses."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model import dtypes, metadata
from fx_onnx.onnx_model.dtypes import value_dtype
from fx_onnx.onnx_model.schemas import operator_schema
from fx_onnx.sizes.symbolic_sizes import SymbolicNumber
from fx_onnx.translation.emitter import Emitter


def is_float(self: torch.Tensor) -> bool:
    """Returns whether a tensor has floats, real ones, which ONNX's operators on NaN and infinity admit."""
    return self.is_floating_point()


def admitted_dtypes(op: Emitter, op_type: str) -> frozenset[DataType] | None:
    """Returns the dtypes that an ONNX operator's first input admits, or None if its type is not a type variable."""
    schema = operator_schema(op_type, op.opset)
    return schema.types.get(schema.inputs[0].type) if schema is not None else None


def widened(op: Emitter, op_type: str, value: Value) -> Value:
    """Returns the value in its own dtype if the operator's first input admits it, else in the nearest wider dtype.

    Raises:
        NotImplementedError: the operator admits no wider dtype.
    """
    types, dtype = admitted_dtypes(op, op_type), value.dtype
    if types is None or dtype is None or dtype in types:
        return value
    if dtypes.is_float(dtype):
        wider: tuple[DataType, ...] = (DataType.FLOAT, DataType.DOUBLE)
    elif dtype.bitwidth >= 32:  # FLOAT cannot represent all 32-bit integers
        wider = (DataType.INT64, DataType.DOUBLE)
    else:
        wider = (DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE)
    for candidate in wider:
        if candidate in types:
            return op.cast(value, candidate)
    raise NotImplementedError(f"ONNX {op_type} takes neither {dtype.name} nor a wider dtype.")


def emit_widened(op: Emitter, op_type: str, *operands: Value, **attributes: Any) -> Value:
    """Emits one node in the nearest dtype that the operator admits, and casts the result back to the operands' dtype.

    A result of another dtype than the operands, such as BOOL, is not cast.
    """
    dtype, wide = operands[0].dtype, [widened(op, op_type, operand) for operand in operands]
    result: Value = op.emit(op_type, *wide, **attributes)
    return result if dtype is None or result.dtype != wide[0].dtype else op.cast(result, dtype)


def one_node(op_type: str, attributes: Mapping[str, float]) -> Callable[[Emitter, Value], Value]:
    """Returns a translation of an operator of one tensor, which emits one node by ``emit_widened``."""

    def aten_one_node(op: Emitter, self: Value) -> Value:
        """Emits one ONNX node."""
        return emit_widened(op, op_type, self, **attributes)

    return aten_one_node


# ---------------------------------------------------------------- numbers beside half precision

_HALVES = (DataType.FLOAT16, DataType.BFLOAT16)


def keeps_numbers(function: Callable[..., Value]) -> Callable[..., Value]:
    """Makes a translation compute half precision in float32 where the dtype would lose a number.

    torch's kernels of some operators take a number beside tensors of half precision as a float32 number. A rounding to
    an integer afterwards, by a ``rounding_mode``, makes each error of the number visible.
    """

    @functools.wraps(function)
    def translation(op: Emitter, *args: Any, **kwargs: Any) -> Value:
        dtype, operands = op.out_dtype, (*args, *kwargs.values())
        precision = 0 if any(isinstance(x, str) for x in operands) else 1
        if dtype not in _HALVES or not any(_is_lost(op, x, dtype, precision) for x in operands):
            return function(op, *args, **kwargs)
        out, op.out = op.out, (op.out[0].float(),)
        try:
            wide = [op.cast(x, DataType.FLOAT) if isinstance(x, Value) else x for x in args]
            return op.cast(function(op, *wide, **kwargs), dtype)
        finally:
            op.out = out

    return translation


def _is_lost(op: Emitter, operand: Any, dtype: DataType, precision: int) -> bool:
    """Returns whether a number, or a tensor without axes, may differ in ``dtype`` by more than its epsilon.

    With the precision 0, it may not differ at all.
    """
    if isinstance(operand, Value):
        if op.rank(operand) or value_dtype(operand).bitwidth < 32:
            return False
        constant = operand.const_value
        if constant is None or operand.metadata_props.get(metadata.INPUT_KIND, "CONSTANT_TENSOR") != "CONSTANT_TENSOR":
            return True  # computed, or a weight, which the caller may replace
        operand = constant.numpy().item()
    if not isinstance(operand, (int, float)):
        return isinstance(operand, SymbolicNumber)
    half, number = dtypes.torch_dtype(dtype), float(operand)
    error = abs(torch.tensor(number, dtype=half).item() - number)
    return error > precision * torch.finfo(half).eps * abs(number)
