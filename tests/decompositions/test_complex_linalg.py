"""Products and convolutions of pairs against torch."""

from typing import Any

import pytest
import torch

from tests.decompositions.test_complex_numbers import numbers, same

aten = torch.ops.aten


@pytest.mark.parametrize("side", ["both", "left", "right"])
def test_products(side: str) -> None:
    def given(*shape: int, complex_: bool) -> torch.Tensor:
        return numbers(*shape) if complex_ else numbers(*shape).real

    left, right = side != "right", side != "left"
    if side == "both":  # torch multiplies matrices of one dtype only
        same(aten.mm.default, numbers(2, 3), numbers(3, 4))
        same(aten.bmm.default, numbers(2, 2, 3), numbers(2, 3, 4))
        same(aten.mv.default, numbers(2, 3), numbers(3))
        same(aten.dot.default, numbers(3), numbers(3))
        same(aten.vdot.default, numbers(3), numbers(3) * 1j)
        same(aten.matmul.default, numbers(2, 3), numbers(3))
        same(aten.linear.default, numbers(2, 3), numbers(4, 3), numbers(4))
    same(aten.outer.default, given(3, complex_=left), given(2, complex_=right))
    same(aten.kron.default, given(2, 2, complex_=left), given(2, 3, complex_=right))


@pytest.mark.parametrize("scales", [(1, 1), (0, 2), (0.5, 1j)], ids=str)
def test_scaled_sums(scales: tuple[complex, complex]) -> None:
    options: dict[str, Any] = {"beta": scales[0], "alpha": scales[1]}
    same(aten.addmm.default, numbers(2, 4), numbers(2, 3), numbers(3, 4), **options)
    same(aten.addmv.default, numbers(2), numbers(2, 3), numbers(3), **options)
    same(aten.baddbmm.default, numbers(2, 2, 4), numbers(2, 2, 3), numbers(2, 3, 4), **options)
    same(aten.addbmm.default, numbers(2, 4), numbers(2, 2, 3), numbers(2, 3, 4), **options)
    same(aten.addr.default, numbers(2, 3), numbers(2), numbers(3), **options)


def test_convolutions() -> None:
    same(aten.conv1d.default, numbers(2, 3, 8), numbers(4, 3, 3), numbers(4), [2], [1])
    same(aten.conv2d.default, numbers(1, 2, 5, 5), numbers(2, 1, 3, 3), None, [1, 1], [0, 0], [1, 1], 2)
    same(aten.conv_transpose1d.default, numbers(2, 3, 5), numbers(3, 2, 3), numbers(2), [2])
