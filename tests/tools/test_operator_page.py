"""docs/operators.md: the entries, and that the page is current."""

from __future__ import annotations

import pytest
import torch

from fx_onnx.torch_internals.torch_private import OpOverload
from tools import operator_page

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (aten.relu.default, "translation"),
        (aten.celu.default, "translation + 18, translation 28"),
        (aten.logaddexp2.default, "decomposition"),
        (aten.scaled_dot_product_attention.default, "decomposition 18, translation + 23"),
        (aten.bartlett_window.default, "constant"),
        (aten._cdist_backward.default, ""),
    ],
    ids=str,
)
def test_entries(target: OpOverload, expected: str) -> None:
    assert operator_page.entry(target) == expected


def test_the_page_is_current() -> None:
    text = operator_page.PAGE.read_text("utf-8")
    if f"torch {operator_page._version()} " not in text:
        pytest.skip("the page lists the operators of another version of torch")
    assert text == operator_page.page(), "run python -m tools.operator_page"
