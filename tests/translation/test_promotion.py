"""``result_type`` agrees with torch.result_type for every pair of dtypes, ranks and numbers."""

import itertools

import pytest
import torch

from fx_onnx.translation import promotion

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
NUMBERS = [True, 2, 2.5, 1j]


def _operands() -> list[object]:
    tensors = [torch.ones([2] * rank, dtype=dtype) for dtype in DTYPES for rank in (0, 1)]
    return [*tensors, *NUMBERS]


def _typed(operand: object) -> promotion.TypedRank:
    if isinstance(operand, torch.Tensor):
        return operand.dtype, operand.dim()
    return promotion.number_dtype(operand), None


def test_every_pair() -> None:
    for a, b in itertools.product(_operands(), repeat=2):
        want = torch.result_type(a, b)
        got = promotion.result_type([_typed(a), _typed(b)])
        assert got == want, f"{_typed(a)} with {_typed(b)}: {got} instead of {want}"


def test_three_operands() -> None:
    """The third operand repeats the second, because torch.result_type takes only two."""
    tensors = [torch.ones([2] * rank, dtype=dtype) for dtype in DTYPES for rank in (0, 1)]
    for a, b in itertools.product(tensors, repeat=2):
        got = promotion.result_type([_typed(a), _typed(b), _typed(b)])
        assert got == torch.result_type(a, b)


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.float16])
def test_numbers_follow_the_default_dtype(default: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for number, dtype in itertools.product([1.5, 1j], [torch.int32, torch.bool, torch.float32]):
            tensor = torch.ones(2, dtype=dtype)
            want = torch.result_type(tensor, number)
            assert promotion.result_type([_typed(tensor), _typed(number)]) == want
    finally:
        torch.set_default_dtype(before)


def test_invalid_operands_are_refused() -> None:
    with pytest.raises(TypeError, match="a number was expected, not a str"):
        promotion.number_dtype("2")
    with pytest.raises(TypeError, match="at least one operand"):
        promotion.result_type([])
