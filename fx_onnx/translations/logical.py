"""Logic, bit operations and shifts."""

from collections.abc import Callable

from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Operand

# ---------------------------------------------------------------- logic

_LOGICAL = {aten.logical_and.default: "And", aten.logical_or.default: "Or", aten.logical_xor.default: "Xor"}


def _logical(op_type: str) -> Callable[[Emitter, Value, Value], Value]:
    def aten_logical(op: Emitter, self: Value, other: Value) -> Value:
        """Emits And, Or or Xor of the operands as booleans; NaN is true."""
        result: Value = op.emit(op_type, op.cast(self, DataType.BOOL), op.cast(other, DataType.BOOL))
        return result

    return aten_logical


for _target, _op_type in _LOGICAL.items():
    translates(_target)(_logical(_op_type))


@translates(aten.logical_not.default)
def aten_logical_not(op: Emitter, self: Value) -> Value:
    """Emits Not of self as a boolean."""
    return op.Not(op.cast(self, DataType.BOOL))


# ---------------------------------------------------------------- bits

_BITWISE = {
    "And": (aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.bitwise_and.Scalar_Tensor,
            aten.__and__.Tensor, aten.__and__.Scalar),
    "Or": (aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.bitwise_or.Scalar_Tensor,
           aten.__or__.Tensor, aten.__or__.Scalar),
    "Xor": (aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.bitwise_xor.Scalar_Tensor,
            aten.__xor__.Tensor, aten.__xor__.Scalar),
}  # fmt: skip


def _bitwise(logical: str) -> Callable[[Emitter, Operand, Operand], Value]:
    def aten_bitwise(op: Emitter, self: Operand, other: Operand) -> Value:
        """Emits BitwiseAnd, BitwiseOr or BitwiseXor; booleans use And, Or and Xor."""
        first, second = op.promote(self, other, dtype=op.out[0].dtype)
        result: Value = op.emit(logical if first.dtype == DataType.BOOL else f"Bitwise{logical}", first, second)
        return result

    return aten_bitwise


for _logical_type, _targets in _BITWISE.items():
    translates(*_targets)(_bitwise(_logical_type))


@translates(aten.bitwise_not.default)
def aten_bitwise_not(op: Emitter, self: Value) -> Value:
    """Emits BitwiseNot; booleans use Not."""
    return op.Not(self) if self.dtype == DataType.BOOL else op.BitwiseNot(self)


# ---------------------------------------------------------------- shifts

_UNSIGNED = {
    DataType.INT8: DataType.UINT8,
    DataType.INT16: DataType.UINT16,
    DataType.INT32: DataType.UINT32,
    DataType.INT64: DataType.UINT64,
}


_FLOATS_DO_NOT_SHIFT = "ONNX cannot shift floating-point numbers; cast them to integers."


def _shifted(op: Emitter, value: Value, count: Operand, direction: str) -> Value:
    """Emits BitShift; counts outside the width give zero.

    Below opset 28, BitShift admits unsigned integers only, and leaves the result undefined if all bits are shifted out.
    """
    dtype = value.dtype
    if dtype is None or not dtypes.is_integer(dtype):
        raise NotImplementedError(_FLOATS_DO_NOT_SHIFT)
    unsigned = _UNSIGNED.get(dtype, dtype)
    bits, source = dtype.bitwidth, op.cast(value, unsigned)
    if isinstance(count, int) and 0 <= count < bits:
        return op.cast(op.BitShift(source, op.cast(count, unsigned), direction=direction), dtype)
    counts = op.cast(count, dtype)
    outside = op.GreaterOrEqual(counts, bits)
    if dtypes.is_signed(dtype):
        outside = op.Or(outside, op.Less(counts, 0))
    steps = op.cast(op.Where(outside, op.cast(0, dtype), counts), unsigned)
    shifted = op.cast(op.BitShift(source, steps, direction=direction), dtype)
    return op.Where(outside, op.cast(0, dtype), shifted)


_LEFT = (
    aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar, aten.bitwise_left_shift.Scalar_Tensor,
    aten.__lshift__.Tensor, aten.__lshift__.Scalar,
)  # fmt: skip
_RIGHT = (
    aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar, aten.bitwise_right_shift.Scalar_Tensor,
    aten.__rshift__.Tensor, aten.__rshift__.Scalar,
)  # fmt: skip


@translates(*_LEFT)
def aten_bitwise_left_shift(op: Emitter, self: Operand, other: Operand) -> Value:
    """Emits BitShift to the left."""
    return _shifted(op, op.cast(self, op.out_dtype), other, "LEFT")


@translates(*_RIGHT)
def aten_bitwise_right_shift(op: Emitter, self: Operand, other: Operand) -> Value:
    """Emits BitShift to the right, filled with the sign.

    A negative number is shifted as its complement, whose sign bit is clear, and complemented again.
    """
    value = op.cast(self, op.out_dtype)
    if value.dtype not in _UNSIGNED:
        return _shifted(op, value, other, "RIGHT")
    sign = op.Where(op.Less(value, 0), op.cast(-1, value.dtype), op.cast(0, value.dtype))
    return op.BitwiseXor(_shifted(op, op.BitwiseXor(value, sign), other, "RIGHT"), sign)


def _shift(direction: str) -> Callable[[Emitter, Operand, Operand], Value]:
    def aten_shift(op: Emitter, self: Operand, other: Operand) -> Value:
        """Emits BitShift, which from opset 28 is defined for signed integers and for all counts, as in torch."""
        if not dtypes.is_integer(op.out_dtype):
            raise NotImplementedError(_FLOATS_DO_NOT_SHIFT)
        result: Value = op.BitShift(op.cast(self, op.out_dtype), op.cast(other, op.out_dtype), direction=direction)
        return result

    return aten_shift


for _direction, _overloads in (("LEFT", _LEFT), ("RIGHT", _RIGHT)):
    translates(*_overloads, since=28)(_shift(_direction))
