"""Logic, bit operations and shifts."""

import torch

from tests.harness import Case, b8, cases, check, f32, i32, i64, u8

aten = torch.ops.aten


@cases(
    [
        Case(aten.logical_and.default, b8(2, 3), b8(3), emits=["And"]),
        Case(aten.logical_or.default, f32(2, 3, values=(0.0, -0.0, 2.0)), b8(3), emits=["Cast", "Or"]),
        Case(aten.logical_xor.default, i64(2, 3), i64(3), emits=["Cast", "Cast", "Xor"]),
        Case(aten.logical_not.default, b8(2, 3), emits=["Not"]),
        Case(aten.logical_not.default, f32(3, values=(0.0, 1.0, float("nan"))), emits=["Cast", "Not"]),
    ]
)
def test_logic(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.bitwise_and.Tensor, b8(2, 3), b8(3), emits=["And"]),
        Case(aten.bitwise_and.Tensor, i64(2, 3), i64(3), emits=["BitwiseAnd"]),
        Case(aten.bitwise_and.Scalar, u8(2, 3, high=255), 15, emits=["BitwiseAnd"]),
        Case(aten.bitwise_or.Tensor, i32(2, 3), i64(3), emits=["Cast", "BitwiseOr"]),
        Case(aten.bitwise_xor.Scalar_Tensor, 3, i64(3), emits=["BitwiseXor"]),
        Case(aten.__and__.Tensor, b8(2, 3), b8(3), emits=["And"]),
        Case(aten.__or__.Scalar, i64(2, 3), 4, emits=["BitwiseOr"]),
        Case(aten.__xor__.Tensor, b8(2, 3), b8(3), emits=["Xor"]),
        Case(aten.bitwise_not.default, b8(2, 3), emits=["Not"]),
        Case(aten.bitwise_not.default, i64(2, 3), emits=["BitwiseNot"]),
        Case(aten.bitwise_right_shift.Tensor_Scalar, u8(2, 3, high=255), 4, emits=["BitShift"]),
        Case(aten.bitwise_left_shift.Tensor_Scalar, i64(2, 3), 4, emits=["Cast", "BitShift", "Cast"], opsets=[20]),
        Case(aten.bitwise_left_shift.Tensor_Scalar, i64(2, 3), 4, emits=["BitShift"]),
        Case(aten.bitwise_right_shift.Tensor, i32(6, low=-99, high=99), i32(6, values=(0, -1, 31, 32, 64, 3))),
        Case(aten.bitwise_left_shift.Tensor, i64(2, 3), i64(3, values=(0, 3, 64))),
        Case(aten.bitwise_right_shift.Tensor, i64(2, 3, low=-99, high=99), i64(3, values=(0, 3, 64))),
        Case(aten.bitwise_right_shift.Tensor, u8(2, 3, high=255), u8(3, values=(0, 3, 9))),
        Case(aten.__lshift__.Scalar, i32(2, 3), 2),
        Case(aten.__rshift__.Tensor, i32(2, 3, low=-99, high=99), i32(3, values=(0, 3, 40))),
    ]
)
def test_bits(case: Case) -> None:
    check(case)
