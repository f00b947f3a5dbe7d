"""Operators of integers and of narrow dtypes."""

import math

import pytest
import torch
from onnx_ir import DataType

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.integers import (
    legalize_bits,
    legalize_boolean_counts,
    legalize_complements,
    legalize_integer_argmax,
    legalize_integer_powers,
    legalize_narrow_fills,
    legalize_round,
    legalize_unsigned_constants,
    legalize_unsigned_steps,
)
from tests.one_capture import OneCapture
from tests.passes.checking import check, check_equal, model, run
from tests.passes.legalization.test_integers import ENDS, Extrema

# ---------------------------------------------------------------- ArgMax of integers

X = torch.tensor([[3, 7, 7, -1], [0, 0, 0, 0]])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_first_of_equal_elements(op_type: str, axis: int, dtype: str) -> None:
    x = X.to(getattr(torch, dtype))
    text = f"g ({dtype}[M,N] x) => (int64[K] y) {{ y = {op_type}<axis={axis}, keepdims=0>(x) }}"
    check(model(text), legalize_integer_argmax, [x], ["TopK", "Squeeze"])


def test_kept_dims_need_no_squeeze() -> None:
    text = "g (int64[M,N] x) => (int64[M,1] y) { a = ArgMax<axis=1>(x)\n y = Neg(a) }"
    check(model(text), legalize_integer_argmax, [X], ["TopK", "Neg"])


@pytest.mark.parametrize(("dtype", "last"), [("float", 0), ("int64", 1)])
def test_what_stays(dtype: str, last: int) -> None:
    text = f"g ({dtype}[M,N] x) => (int64[M,1] y) {{ y = ArgMax<axis=1, select_last_index={last}>(x) }}"
    x = X.float() if dtype == "float" else X
    check(model(text), legalize_integer_argmax, [x], ["ArgMax"])


# ---------------------------------------------------------------- powers of integers


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_powers_are_exact(dtype: str) -> None:
    """They wrap around as torch's do, and the powers of 0, 1 and -1 to a negative exponent are integers."""
    x = torch.tensor([3, 3, -2, 0, 0, 7, 1, -1, -1], dtype=getattr(torch, dtype))
    y = torch.tensor([1, 35, 63, 0, 5, 2, -4, -3, -2], dtype=x.dtype)
    program = model(f"g ({dtype}[N] x, {dtype}[N] y) => ({dtype}[N] z) {{ z = Pow(x, y) }}")
    assert legalize_integer_powers(program).modified
    assert "Pow" not in [node.op_type for node in program.graph]
    wide = [int(a) ** int(b) if b >= 0 else int(a) ** -int(b) for a, b in zip(x, y, strict=True)]
    bits = 64 if dtype == "int64" else 32
    assert run(program, [x, y])[0].tolist() == [(each + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for each in wide]


def test_the_power_of_a_float_stays() -> None:
    text = "g (float[N] x, int64[N] y) => (float[N] z) { z = Pow(x, y) }"
    assert not legalize_integer_powers(model(text)).modified


# ---------------------------------------------------------------- cumulative counts of booleans in int32


def test_counts() -> None:
    text = """g (bool[M,N] b) => (int64[M,N] y) <int64 axis = {1}> {
      c = Cast<to=7>(b)\n y = CumSum<exclusive=1, reverse=1>(c, axis)
    }"""
    booleans = torch.tensor([[True, False, True], [True, True, True]])
    check(model(text), legalize_boolean_counts, [booleans], ["Cast", "CumSum", "Cast"])


def test_sums_of_other_numbers_stay() -> None:
    text = "g (int32[M,N] x) => (int64[M,N] y) <int64 axis = {1}> { c = Cast<to=7>(x)\n y = CumSum(c, axis) }"
    assert not legalize_boolean_counts(model(text)).modified


# ---------------------------------------------------------------- ConstantOfShape of narrow dtypes


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [("int8", "-3", ["ConstantOfShape", "Cast"]), ("uint8", "200", ["ConstantOfShape", "Cast"]),
     ("int64", "7", ["ConstantOfShape"])],
)  # fmt: skip
def test_fill(dtype: str, number: str, expected: list[str]) -> None:
    value = f"value = {dtype}[1] {{{number}}}"
    program = model(f"g (int64[2] s) => ({dtype}[N,M] y) {{ y = ConstantOfShape<{value}>(s) }}")
    check(program, legalize_narrow_fills, [torch.tensor([2, 3])], expected)


# ---------------------------------------------------------------- other operators


def test_round_of_halves_and_large_numbers() -> None:
    x = torch.tensor(
        [0.5, 1.5, 2.5, -0.5, -1.5, 3.4, -3.6, 2.0**22 + 0.5, 2.0**23 + 1, 3e38, math.inf, -math.inf, math.nan]
    )
    expected = ["Abs", "Add", "Sub", "Sign", "Mul", "Greater", "Where"]
    check(model("g (float[N] x) => (float[N] y) { y = Round(x) }"), legalize_round, [x], expected, tolerance=0)


def test_round_of_float16_stays() -> None:
    assert not legalize_round(model("g (float16[N] x) => (float16[N] y) { y = Round(x) }")).modified


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_to_the_power_of_integers(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    program = model(f"g ({name}[A,1] x, int64[N] e) => ({name}[A,N] y) {{ y = Pow(x, e) }}", opset=12)
    OpsetStep(11)(program)
    x, exponents = torch.arange(-4, 5, dtype=dtype)[:, None], torch.tensor([0, 1, 2, 5, 13])
    assert run(program, [x, exponents])[0].equal(x**exponents)
    units, negative = torch.tensor([[-1], [0], [1], [5]], dtype=dtype), torch.tensor([-1, -2, -64, 64, 128])
    got = run(program, [units, negative])[0][:, :3].tolist()
    assert got[0] == [-1, 1, 1]
    assert got[2:] == [[1, 1, 1], [0, 0, 0]]
    assert run(program, [units[:3], negative])[0][:, 3:].tolist() == [[1, 1], [0, 0], [1, 1]]


@pytest.mark.parametrize("op_type", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_bits(op_type: str, dtype: torch.dtype) -> None:
    """All pairs of integers at the ends of the range, around zero, and between."""
    info = torch.iinfo(dtype)
    ends = torch.tensor([info.min, info.max, info.max // 3, 0, 1, 2, 100], dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    before = model(f"g ({name}[N,1] x, {name}[N] z) => ({name}[N,N] y) {{ y = {op_type}(x, z) }}", opset=18)
    OpsetStep(17)(before)
    function = {"BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor}
    (got,) = run(before, [ends[:, None], ends])
    assert got.dtype == dtype
    assert got.equal(function[op_type](ends[:, None], ends))


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_mod(dtype: str, fmod: int) -> None:
    text = f"({dtype}[N] x, {dtype}[N] z) => ({dtype}[N] y) {{ y = Mod<fmod={fmod}>(x, z) }}"
    a, b = torch.tensor([7, -7, 7, -7, 6, -6, 0, 3]), torch.tensor([3, 3, -3, -3, 3, -3, 5, 2**31])
    if fmod:  # ONNX Runtime has no result where Mod without fmod divides the lowest integer by -1
        a, b = (
            torch.cat([a, torch.tensor([torch.iinfo(getattr(torch, dtype)).min] * 2)]),
            torch.cat([b, torch.tensor([-1, 2])]),
        )
    inputs = [x.to(getattr(torch, dtype)) for x in (a, b)]  # 2³¹ is negative as int32
    check_equal(model(f"g {text}", opset=10), OpsetStep(9), inputs)


# ---------------------------------------------------------------- extrema of int64


def test_models() -> None:
    x = torch.tensor(ENDS[:-1])
    captured = OneCapture(Extrema(), (x,))
    for opset in (9, 11, 17):
        for got, wanted in zip(captured.export(opset_version=opset)(x), Extrema()(x), strict=True):
            assert got.equal(wanted)


# ---------------------------------------------------------------- TensorRT


@pytest.mark.parametrize(
    ("dtype", "x", "expected"),
    [
        ("int32", torch.tensor([-1, 255, 256, 1000], dtype=torch.int32), ["Mod", "Cast"]),
        ("int8", torch.tensor([-1, 5, -128], dtype=torch.int8), ["Cast", "Mod", "Cast"]),
        ("float", torch.tensor([0.0, 2.5, 255.0]), ["Cast", "Cast"]),
    ],
)
def test_uint8_between_two_casts(dtype: str, x: torch.Tensor, expected: list[str]) -> None:
    text = f"g ({dtype}[N] x) => (float[N] y) {{ z = Cast<to=2>(x)\n y = Cast<to=1>(z) }}"
    check(model(text), legalize_unsigned_steps, [x], expected)


@pytest.mark.parametrize("operator", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_bits_as_arithmetic(operator: str, dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    program = model(f"g ({name}[N] x, {name}[N] z) => ({name}[N] y) {{ y = {operator}(x, z) }}")
    lowest, highest = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    numbers = torch.tensor([0, -1, 5, lowest, highest, -123456], dtype=dtype)
    check_equal(program, legalize_bits, [numbers, numbers.flip(0)])
    assert operator not in [node.op_type for node in program.graph]


def test_the_complement_as_a_difference() -> None:
    program = model("g (int32[N] x) => (int32[N] y) { y = BitwiseNot(x) }")
    check(program, legalize_complements, [torch.tensor([0, -1, 7], dtype=torch.int32)], ["Sub"])


@pytest.mark.parametrize(
    ("values", "call", "operators"),
    [
        ("uint8[2] c = {1, 200}", "Identity(c)", ["Cast", "Cast"]),
        ("uint8[0] c = {}", "Identity(c)", ["Cast"]),
        ("uint8[0] c = {}", "Cast<to=1>(c)", ["Cast"]),
        ("uint8[2] c = {1, 200}", "Cast<to=1>(c)", ["Cast"]),
        ("uint8[2] c = {1, 200}", "Equal(x, c)", ["Cast", "Cast", "Equal"]),
        ("uint8[0] c = {}", "Identity(x)", ["Identity"]),
    ],
)
def test_constants_of_uint8(values: str, call: str, operators: list[str]) -> None:
    """TensorRT reads them as int32, and none without elements."""
    dtype = "bool" if "Equal" in call else "float" if "to=1" in call else "uint8"
    text = f"g (uint8[N] x) => ({dtype}[M] y) <{values}> {{ y = {call} }}"
    x = torch.tensor([1, 3], dtype=torch.uint8)
    program = check(model(text), legalize_unsigned_constants, [x], operators)
    empty = [c for c in program.graph.initializers.values() if c.dtype == DataType.UINT8 and 0 in c.shape]
    assert not any(c.uses() for c in empty)
