"""Complex decompositions of products and convolutions against torch."""

from typing import Any

import pytest
import torch

from tests.complex_tensors.harness import assert_complex_matches_torch
from tests.decompositions.harness import complex_randn

aten = torch.ops.aten


@pytest.mark.parametrize("side", ["both", "left", "right"])
def test_products(side: str) -> None:
    def operand(*shape: int, complex_: bool) -> torch.Tensor:
        return complex_randn(*shape) if complex_ else complex_randn(*shape).real

    left, right = side != "right", side != "left"
    if side == "both":  # torch does not multiply matrices of different dtypes
        assert_complex_matches_torch(aten.mm.default, complex_randn(2, 3), complex_randn(3, 4))
        assert_complex_matches_torch(aten.bmm.default, complex_randn(2, 2, 3), complex_randn(2, 3, 4))
        assert_complex_matches_torch(aten.mv.default, complex_randn(2, 3), complex_randn(3))
        assert_complex_matches_torch(aten.dot.default, complex_randn(3), complex_randn(3))
        assert_complex_matches_torch(aten.vdot.default, complex_randn(3), complex_randn(3) * 1j)
        assert_complex_matches_torch(aten.matmul.default, complex_randn(2, 3), complex_randn(3))
        assert_complex_matches_torch(aten.linear.default, complex_randn(2, 3), complex_randn(4, 3), complex_randn(4))
    assert_complex_matches_torch(aten.outer.default, operand(3, complex_=left), operand(2, complex_=right))
    assert_complex_matches_torch(aten.kron.default, operand(2, 2, complex_=left), operand(2, 3, complex_=right))


@pytest.mark.parametrize("scales", [(1, 1), (0, 2), (0.5, 1j)], ids=str)
def test_scaled_sums(scales: tuple[complex, complex]) -> None:
    options: dict[str, Any] = {"beta": scales[0], "alpha": scales[1]}
    assert_complex_matches_torch(
        aten.addmm.default, complex_randn(2, 4), complex_randn(2, 3), complex_randn(3, 4), **options
    )
    assert_complex_matches_torch(aten.addmv.default, complex_randn(2), complex_randn(2, 3), complex_randn(3), **options)
    assert_complex_matches_torch(
        aten.baddbmm.default, complex_randn(2, 2, 4), complex_randn(2, 2, 3), complex_randn(2, 3, 4), **options
    )
    assert_complex_matches_torch(
        aten.addbmm.default, complex_randn(2, 4), complex_randn(2, 2, 3), complex_randn(2, 3, 4), **options
    )
    assert_complex_matches_torch(aten.addr.default, complex_randn(2, 3), complex_randn(2), complex_randn(3), **options)


def test_convolutions() -> None:
    assert_complex_matches_torch(
        aten.conv1d.default, complex_randn(2, 3, 8), complex_randn(4, 3, 3), complex_randn(4), [2], [1]
    )
    assert_complex_matches_torch(
        aten.conv2d.default, complex_randn(1, 2, 5, 5), complex_randn(2, 1, 3, 3), None, [1, 1], [0, 0], [1, 1], 2
    )
    assert_complex_matches_torch(
        aten.conv_transpose1d.default, complex_randn(2, 3, 5), complex_randn(3, 2, 3), complex_randn(2), [2]
    )
