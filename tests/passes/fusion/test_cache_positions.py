"""Matching of consecutive positions."""

import pytest

from fx_onnx.passes.fusion.cache_positions import match_positions
from tests.passes.checking import model

CONSTANTS = "<int64 zero = {0}, int64 one = {1}, int64 two = {2}>"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("p = Range(zero, n, one)", None),
        ("r = Range(zero, n, one)\n p = Add(r, start)", "start"),
        ("r = Range(zero, n, one)\n p = Add(start, r)", "start"),
    ],
)
def test_matched(text: str, start: str | None) -> None:
    graph = model(f"g (int64 n, int64 start) => (int64[N] p) {CONSTANTS} {{ {text} }}").graph
    found = match_positions(graph.outputs[0])
    assert found is not None
    assert (found.start.name if found.start is not None else None, found.length.name) == (start, "n")


@pytest.mark.parametrize(
    "text",
    [
        "p = Range(one, n, one)",
        "p = Range(zero, n, two)",
        "r = Range(zero, n, one)\n p = Add(r, r)",
        "r = Range(zero, n, one)\n p = Add(r, starts)",
        "r = Range(zero, n, one)\n p = Mul(r, start)",
    ],
)
def test_not_matched(text: str) -> None:
    """Another first position or step, and a start that is not one number."""
    graph = model(f"g (int64 n, int64 start, int64[1] starts) => (int64[N] p) {CONSTANTS} {{ {text} }}").graph
    assert match_positions(graph.outputs[0]) is None
