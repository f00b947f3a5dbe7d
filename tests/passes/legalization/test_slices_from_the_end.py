"""Slices that begin or end before the end of a dynamic axis."""

import pytest
import torch

from fx_onnx.passes.legalization.slices_from_the_end import LegalizeSlicesFromTheEnd
from tests.passes.checking import check, model

LAST = 2**63 - 1
CLIP = ["Shape", "Add", "Max"]


def sliced(starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> str:
    constants = ", ".join(
        f"int64[{len(axes)}] {name} = {{{', '.join(map(str, numbers))}}}"
        for name, numbers in (("a", starts), ("b", ends), ("c", axes), ("d", steps))
    )
    return f"g (float[N,M,6] x) => (float[R,S,T] y) <{constants}> {{ y = Slice(x, a, b, c, d) }}"


@pytest.mark.parametrize("rows", [13, 5, 8])
@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (-8, LAST, 1, CLIP),
        (-8, LAST, 3, CLIP),
        (0, -2, 1, CLIP),
        (-8, -2, 1, [*CLIP, *CLIP]),
        (-1, LAST, 1, []),
        (0, -1, 1, []),
        (2, LAST, 1, []),
        (-1, -(2**63), -1, []),
    ],
)
def test_one_axis(start: int, end: int, step: int, expected: list[str], rows: int) -> None:
    """The size is larger than k, smaller and equal."""
    program = model(sliced([start], [end], [0], [step]))
    check(program, LegalizeSlicesFromTheEnd(), [torch.randn(rows, 4, 6)], ["Slice", *expected])


def test_several_axes() -> None:
    """A static axis keeps its number unless the number is before its begin."""
    program = model(sliced([-3, 1, -9], [LAST, LAST, -2], [1, 0, -1], [1, 1, 1]))
    check(program, LegalizeSlicesFromTheEnd(), [torch.randn(3, 2, 6)], ["Slice", "Concat", *CLIP])
