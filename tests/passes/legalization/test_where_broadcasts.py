"""Where with a smaller third operand."""

import pytest
import torch

from fx_onnx.passes.legalization.where_broadcasts import LegalizeWhere
from tests.passes.checking import check, model


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ("x", "row", ["Not", "Where"]),
        ("x", "column", ["Not", "Where"]),
        ("row", "column", ["Shape", "Expand", "Where"]),
        ("column", "row", ["Shape", "Expand", "Where"]),
        ("x", "one", ["Where"]),
        ("one", "row", ["Where"]),
        ("row", "x", ["Where"]),
    ],
)
def test_where(x: str, y: str, expected: list[str]) -> None:
    constants = "float[4] row = {1.0, 2.0, 3.0, 4.0}, float[3,1] column = {5.0, 6.0, 7.0}, float one = {9.0}"
    text = f"g (float[3,4] x, bool[3,4] c) => (float[3,4] y) <{constants}> {{ y = Where(c, {x}, {y}) }}"
    check(model(text), LegalizeWhere(), [torch.randn(3, 4), torch.rand(3, 4) > 0.5], expected)
