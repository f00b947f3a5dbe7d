"""Sums, products, quotients, remainders and powers."""

import math
from typing import Any

import pytest
import torch

from tests.exporting import exported, operators
from tests.harness import Case, b8, bf16, cases, check, f16, f32, f64, i8, i32, i64, u8
from tests.one_capture import OneCapture

aten = torch.ops.aten
QUOTIENTS = (7.0, -7.0, 0.5, 1.0, -1.0, 6.0, -0.0)
DIVISORS = (2.0, 2.0, 0.1, 0.1, 0.1, -3.0, 3.0)
ZEROS = (0.0, -0.0, -1.0, math.nan)
POINTS = (0.0, -0.0, 2.0, -2.0, 3.0, math.inf, -math.inf, math.nan)
INTEGERS = (7, -7, 6, -6, -128, 127)
INTEGER_DIVISORS = (3, 3, -4, -3, 3, -5)
LARGE = (1732356000123456789, 1732356000999999999, -1732356000999999999, 10**18, -(2**63), 2**63 - 1)  # beyond 2**53
LARGE_DIVISORS = (10**9, -(10**9), 10**9, 10**9, 3, -7)


@cases(
    [
        Case(aten.add.Tensor, u8(3, high=255), 300, emits=["Add"]),
        Case(aten.mul.Tensor, u8(3, high=255), -2),
        Case(aten.add.Tensor, f32(2, 3), f32(3), emits=["Add"]),
        Case(aten.add.Tensor, i64(2, 3), f32(2, 3), emits=["Cast", "Add"]),
        Case(aten.add.Tensor, b8(2, 3), b8(2, 3), emits=["Or"]),
        Case(aten.add.Tensor, f32(2, 3), f32(2, 3), alpha=2, emits=["Mul", "Add"]),
        Case(aten.add.Tensor, f16(2, 3), f32(), emits=["Cast", "Add"]),
        Case(aten.add.Tensor, u8(2, 3), i8(3), emits=["Cast", "Cast", "Add"]),
        Case(aten.add.Tensor, f32(0, 3), f32(3)),
        Case(aten.add.Scalar, i32(2, 3), 2.5, emits=["Cast", "Add"]),
        Case(aten.sub.Tensor, f32(2, 3), i64(3), emits=["Cast", "Sub"]),
        Case(aten.sub.Tensor, i64(2, 3), i64(2, 3), alpha=3, emits=["Mul", "Sub"]),
        Case(aten.rsub.Scalar, i64(2, 3), 1.0, emits=["Cast", "Sub"]),
        Case(aten.rsub.Tensor, f64(2, 3), f64(2, 3), alpha=2, emits=["Mul", "Sub"]),
        Case(aten.mul.Tensor, i64(2, 3), 2.5, emits=["Cast", "Mul"]),
        Case(aten.mul.Tensor, b8(2, 3), b8(2, 3), emits=["And"]),
        Case(aten.mul.Tensor, f32(), f32(2), emits=["Mul"]),
        Case(aten.square.default, f32(2, 3), emits=["Mul"]),
        Case(aten.addcmul.default, f32(2, 3), f32(3), f32(2, 1), value=2, emits=["Mul", "Mul", "Add"]),
        Case(aten.addcmul.default, i64(2, 3), i64(3), i64(2, 1), emits=["Mul", "Add"]),
        Case(aten.addcdiv.default, f32(2, 3), f32(3), f32(2, 1), emits=["Div", "Add"]),
    ]
)
def test_sums_and_products(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.div.Tensor, f32(2, 3), f32(3), emits=["Div"]),
        Case(aten.div.Tensor, i64(2, 3), i64(3, low=1), emits=["Cast", "Cast", "Div"]),
        Case(aten.div.Scalar, f32(2, 3), 0.0, emits=["Div"]),
        Case(aten.div.Tensor_mode, f32(2, 3), f32(3), rounding_mode=None, emits=["Div"]),
        Case(aten.div.Tensor_mode, f32(7, values=QUOTIENTS), f32(7, values=DIVISORS), rounding_mode="trunc"),
        Case(aten.div.Tensor_mode, f32(7, values=QUOTIENTS), f32(7, values=DIVISORS), rounding_mode="floor"),
        Case(aten.div.Tensor_mode, i64(6, values=INTEGERS), i64(6, values=INTEGER_DIVISORS), rounding_mode="floor"),
        Case(aten.div.Tensor_mode, i64(6, values=INTEGERS), i64(6, values=INTEGER_DIVISORS), rounding_mode="trunc",
             emits=["Equal", "Where", "Neg", "Where", "Div"]),
        Case(aten.div.Scalar_mode, u8(2, 3), 3, rounding_mode="floor", emits=["Div"]),
        Case(aten.floor_divide.default, f32(7, values=QUOTIENTS), f32(7, values=DIVISORS)),
        Case(aten.floor_divide.default, f64(2, 3, 4), f64(4)),
        Case(aten.floor_divide.default, i32(6, values=INTEGERS), i32(6, values=INTEGER_DIVISORS)),
        Case(aten.floor_divide.default, i32(3, values=[-(2**31) + 1, 127, 1]), i32(3, values=[3, -(2**31), -(2**31)])),
        Case(aten.floor_divide.Scalar, i64(2, 3), -2),
        Case(aten.floor_divide.default, i64(6, values=LARGE), i64(6, values=LARGE_DIVISORS),
             emits=["Equal", "Where", "Neg", "Where", "Div", "Mul", "Mod", "Sub", "Sub", "Div", "Sub"]),
        Case(aten.floor_divide.default, i64(6, 1, values=LARGE), i64(6, values=LARGE)),
        Case(aten.floor_divide.Scalar, i64(6, values=LARGE), 10**9, emits=["Div", "Mul", "Greater", "Cast", "Sub"]),
        Case(aten.div.Scalar_mode, i64(6, values=LARGE), -(10**9), rounding_mode="floor"),
        Case(aten.floor_divide.Scalar, i8(6, values=INTEGERS), 200),
        Case(aten.floor_divide.Scalar, i8(6, values=INTEGERS), -7),
        Case(aten.floor_divide.Scalar, f32(2, 3), 0.3),
        Case(aten.fmod.Tensor, f32(7, values=QUOTIENTS), f32(7, values=DIVISORS), emits=["Mod"]),
        Case(aten.fmod.Tensor, i64(6, values=LARGE), i64(6, values=LARGE_DIVISORS), emits=["Abs", "Div", "Mul", "Sub"]),
        Case(aten.fmod.Scalar, i64(6, values=LARGE), 10**9),
        Case(aten.fmod.Scalar, i32(6, values=INTEGERS), -4, emits=["Mod"]),
        Case(aten.remainder.Scalar, i64(6, values=LARGE), 10**9, emits=["Mod"]),
        Case(aten.remainder.Tensor, i64(6, values=INTEGERS), i64(6, values=INTEGER_DIVISORS),
             emits=["Equal", "Where", "Mod"]),
        Case(aten.remainder.Tensor, f32(7, values=QUOTIENTS), f32(7, values=DIVISORS), emits=["Mod"]),
        Case(aten.remainder.Tensor, f16(7, values=QUOTIENTS), f16(7, values=DIVISORS)),
        Case(aten.remainder.Scalar, f32(2, 3), 0.7, emits=["Mod", "Less", "Add", "Where"], opsets=[27]),
        Case(aten.remainder.Scalar, f32(2, 3), -0.7, emits=["Mod", "Greater", "Add", "Where"], opsets=[20]),
        Case(aten.remainder.Scalar_Tensor, 5, f32(2, 3)),
    ]
)  # fmt: skip
def test_quotients(case: Case) -> None:
    check(case)


SMALL_AND_LARGE = (1e-3, -2.0, 0.0, 5.0, 3e-5, 60000.0)
STEPS = (2.5, -2.0, 0.0, 5.0, 0.75, -8.25)
OPSETS = [13, 18, 23]


@cases(
    [
        Case(aten.mul.Tensor, f16(6, values=SMALL_AND_LARGE), 1e5, emits=["Cast", "Mul", "Cast"], opsets=OPSETS),
        Case(aten.mul.Tensor, f16(6, values=SMALL_AND_LARGE), 1e-8, emits=["Cast", "Mul", "Cast"]),
        Case(aten.mul.Tensor, f16(6, values=SMALL_AND_LARGE), f32(values=[1e5]), emits=["Cast", "Mul", "Cast"]),
        Case(aten.mul.Tensor, f16(6, values=SMALL_AND_LARGE), i64(values=[100_000]), opsets=OPSETS),
        Case(aten.mul.Tensor, f16(6, values=SMALL_AND_LARGE), 0.1, emits=["Mul"]),
        Case(aten.mul.Tensor, f16(6, values=SMALL_AND_LARGE), math.inf, emits=["Mul"]),
        Case(aten.mul.Tensor, f16(6, values=SMALL_AND_LARGE), f16(values=[0.5]), emits=["Mul"]),
        Case(aten.mul.Tensor, bf16(6, values=SMALL_AND_LARGE), 3.4e38, opsets=OPSETS),
        Case(aten.div.Tensor, f16(6, values=SMALL_AND_LARGE), 1e5, opsets=OPSETS),
        Case(aten.div.Scalar, f16(6, values=SMALL_AND_LARGE), 1e-8, opsets=OPSETS),
        Case(aten.addcmul.default, f16(6, values=SMALL_AND_LARGE), f16(6, low=0.5), f16(6), value=1e5, opsets=OPSETS),
        Case(aten.addcdiv.default, f16(6, values=SMALL_AND_LARGE), f16(6), f16(6, low=0.5), value=7e4, opsets=OPSETS),
        Case(aten.div.Tensor_mode, f16(6, values=STEPS), 0.3, rounding_mode="trunc", opsets=OPSETS),
        Case(aten.div.Scalar_mode, bf16(6, values=STEPS), 0.1, rounding_mode="trunc", opsets=OPSETS),
        Case(aten.div.Tensor_mode, f16(6, values=STEPS), 0.1, rounding_mode="floor", opsets=OPSETS),
        Case(aten.floor_divide.default, f16(6, values=STEPS), f32(values=[-0.1]), opsets=OPSETS),
        Case(aten.floor_divide.default, f16(6, values=STEPS), 1e-8, opsets=OPSETS),
        Case(aten.div.Scalar, f16(6, values=STEPS), 0.5, emits=["Div"]),
    ]
)
def test_a_number_beside_half_precision_stays_a_number_of_float32(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.pow.Tensor_Tensor, f32(2, 3, low=0.1), f32(3), emits=["Pow"]),
        Case(aten.pow.Tensor_Tensor, i64(2, 3), i64(3)),
        Case(aten.pow.Scalar, 0, i64(5)),
        Case(aten.pow.Tensor_Tensor, u8(2, 3), u8(3), emits=["Cast", "Cast", "Pow", "Cast"]),
        Case(aten.pow.Scalar, 2, f32(3), emits=["Pow"]),
        Case(aten.pow.Tensor_Scalar, f32(2, 3), 2, emits=["Pow"]),
        Case(aten.pow.Tensor_Scalar, f32(2, 3, low=0.0), 0.5, emits=["Sqrt"]),
        Case(aten.pow.Tensor_Scalar, f32(2, 3, low=0.1), -1, emits=["Reciprocal"]),
        Case(aten.pow.Tensor_Scalar, i64(2, 3), 2, emits=["Mul"]),
        Case(aten.pow.Tensor_Scalar, i64(2, 3), 3, emits=["Mul", "Mul"]),
        Case(aten.pow.Tensor_Scalar, i64(2, 3), 5, emits=["Mul"] * 3),
        Case(aten.pow.Tensor_Scalar, i64(2, 3, low=-(2**60), high=2**60), 11),
        Case(aten.pow.Tensor_Scalar, i32(2, 3, low=-(2**30), high=2**30), 7),
        Case(aten.pow.Tensor_Scalar, u8(2, 3), 6),
        Case(aten.pow.Tensor_Scalar, i32(2, 3, low=1), 1.5, emits=["Cast", "Pow"]),
        Case(aten.rsqrt.default, f32(2, 3, low=0.1), emits=["Sqrt", "Reciprocal"]),
        Case(aten.rsqrt.default, i64(2, 3, low=1)),
    ]
)
def test_powers(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.lerp.Scalar, f32(2, 3), f32(3), 0.25, emits=["Sub", "Mul", "Add"]),
        Case(aten.lerp.Scalar, f32(2, 3), f32(3), 0.75, emits=["Sub", "Mul", "Sub"]),
        Case(aten.lerp.Tensor, f32(2, 3), f32(3), f32(2, 3)),
        Case(aten.signbit.default, f32(4, values=ZEROS), emits=["Less", "Reciprocal", "Less", "Or"]),
        Case(aten.signbit.default, i64(4), emits=["Less"]),
        Case(aten.copysign.Tensor, f32(2, 3), f32(3, values=(0.0, -0.0, -1.0))),
        Case(aten.copysign.Scalar, i64(2, 3), -2.0),
        Case(aten.hypot.default, f32(2, 3), f32(3)),
        Case(aten.atan2.default, f32(8, 1, values=POINTS), f32(8, values=POINTS)),
        Case(aten.nextafter.default, f32(2, 3), f32(3), tolerance=0.0),
        Case(aten.gcd.default, i32(2, 3, low=-60, high=60), i32(3, low=-60, high=60)),
        Case(aten.lcm.default, i32(2, 3, low=-60, high=60), i32(3, low=-60, high=60)),
    ]
)  # fmt: skip
def test_functions_of_two_numbers(case: Case) -> None:
    check(case)


class Quotients(torch.nn.Module):
    """Each form of a quotient and of a remainder, of two tensors and of a tensor and -1."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("minus", torch.tensor([-1]))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        lowest = torch.iinfo(x.dtype).min
        found = [f(x, d) for d in (y, -1, y[:1], self.minus.to(x.dtype)) for f in FORMS]
        return [*found, *(f(torch.full_like(y, lowest), y) for f in FORMS), torch.remainder(lowest, y)]


def _truncated(x: torch.Tensor, y: torch.Tensor | int) -> torch.Tensor:
    return torch.div(x, y, rounding_mode="trunc")


FORMS = torch.remainder, torch.fmod, torch.floor_divide, _truncated


@pytest.mark.parametrize("shapes", [None, ({0: "n"}, {0: "n"})])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_lowest_integer_by_minus_one(dtype: torch.dtype, shapes: Any) -> None:
    """ONNX Runtime ends the process at such a Div or Mod, as torch does where it truncates; the quotient wraps."""
    lowest = torch.iinfo(dtype).min
    captured = OneCapture(Quotients(), (torch.tensor([7, 5, 3], dtype=dtype), torch.tensor([2, 3, 4], dtype=dtype)),
                          dynamic_shapes=shapes)  # fmt: skip
    x, y = torch.tensor([lowest, lowest, 7], dtype=dtype), torch.tensor([-1, 2, -1], dtype=dtype)
    for opset in (9, 13, 18, 21, 25):
        program = captured.export(opset_version=opset)
        found = iter(program(x, y))
        for divisor in (y, -1, y[:1], torch.tensor([-1], dtype=dtype)):
            for form, got in zip(FORMS, found, strict=False):
                assert got.equal(torch.tensor(_wanted(form, x, divisor), dtype=dtype)), (form, divisor)
        assert [each.tolist() for each in found] == [
            *(_wanted(form, torch.full_like(y, lowest), y) for form in FORMS), [0, 0, 0]
        ]  # fmt: skip


def _wanted(form: Any, x: torch.Tensor, y: torch.Tensor | int) -> list[int]:
    """Returns what torch computes where the divisor is not -1, and -x wrapped, or 0, where it is."""
    divisor = torch.as_tensor(y, dtype=x.dtype).expand_as(x)
    usual = form(x, torch.where(divisor == -1, 1, divisor))
    of_minus = torch.zeros_like(x) if form in (torch.remainder, torch.fmod) else -x
    result: list[int] = torch.where(divisor == -1, of_minus, usual).tolist()
    return result


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x // 3, lambda x: x % -2, lambda x: x // x.shape[0], lambda x: x % torch.tensor(3), lambda x: 5 // x,
        lambda x: x.short() // x, lambda x: x // x.byte(), lambda x: x // torch.tensor(-2), lambda x: x % True,
    ],
)  # fmt: skip
def test_a_quotient_that_cannot_overflow_has_no_choice(function: Any) -> None:
    program = exported(function, torch.tensor([7, 5]), dynamic_shapes=({0: "n"},))
    assert not {"Where", "Abs", "Neg"} & set(operators(program))
