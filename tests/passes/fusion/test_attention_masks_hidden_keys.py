"""Elimination of the keys that a mask hides from all queries."""

import pytest
import torch

from fx_onnx.passes.fusion.attention_masks import slice_hidden_keys
from tests.passes.checking import check, model

INPUTS = "float[N,4,L,3] q, float[N,2,6,3] k, float[N,2,6,5] v, bool[N,1,1,6] pad, int64 start, int64 n"
CONSTANTS = (
    "<int64 zero = {0}, int64 one = {1}, int64 six = {6}, int64[3] rows = {0, 1, 3}, int64[3] front = {0, 1, 2},"
    " int64[1,1,1,6] keys = {0, 1, 2, 3, 4, 5}, int64[1,1,1,6] shuffled = {0, 1, 2, 3, 5, 4}, bool[1,1,L,6] c,"
    " bool[N,1,L,6] m>"
)
POSITIONS = "r = Range(zero, n, one)\n p = Add(r, start)\n b = Unsqueeze(p, rows)\n"
CAUSAL = f"{POSITIONS} c = LessOrEqual(keys, b)\n"
MASK = "m = And(c, pad)\n"
RESULT = "y = Attention(q, k, v, m)"
SLICED = ["Range", "Add", "Unsqueeze", "And", "Add", "Reshape", "Slice", "Slice", "Slice", "Attention"]


def program(text: str, opset: int = 24) -> object:
    return model(f"g ({INPUTS}) => (float[N,4,L,5] y) {CONSTANTS} {{ {text} }}", opset=opset)


def args(start: int, length: int = 2) -> list[torch.Tensor]:
    """The first two keys of the second row are padding, so its first query sees no key if the start is 0 or 1."""
    pad = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    pad[1, ..., :2] = False
    tensors = [torch.randn(2, *size) for size in ((4, length, 3), (2, 6, 3), (2, 6, 5))]
    return [*tensors, pad, torch.tensor(start), torch.tensor(length)]


@pytest.mark.parametrize("start", [0, 1, 3, 4])
def test_keys_after_the_last_position(start: int) -> None:
    """Also where a query sees no key at all."""
    check(program(CAUSAL + MASK + RESULT), slice_hidden_keys, args(start), [*SLICED, "LessOrEqual"])


@pytest.mark.parametrize(
    ("causal", "operators"),
    [
        (f"{POSITIONS} c = GreaterOrEqual(b, keys)\n", ["GreaterOrEqual"]),
        (f"{POSITIONS} l = Range(zero, six, one)\n j = Unsqueeze(l, front)\n c = LessOrEqual(j, b)\n",
         ["LessOrEqual", "Range", "Unsqueeze"]),
        (f"{CAUSAL.replace('c =', 'd =')} s = Shape(d)\n c = Expand(d, s)\n", ["LessOrEqual", "Shape", "Expand"]),
    ],
    ids=["reversed", "many keys", "expanded"],
)  # fmt: skip
def test_forms_of_the_mask(causal: str, operators: list[str]) -> None:
    check(program(causal + MASK + RESULT), slice_hidden_keys, args(3), [*SLICED, *operators])


def test_from_the_first_position_on() -> None:
    text = CAUSAL.replace("p = Add(r, start)\n", "").replace("(p,", "(r,")
    operators = [each for each in SLICED if each != "Add"]
    check(program(text + MASK + RESULT), slice_hidden_keys, args(0), [*operators, "LessOrEqual"])


@pytest.mark.parametrize(
    "text",
    [
        f"c = Identity(pad)\n{MASK}{RESULT}",
        CAUSAL.replace("keys", "shuffled") + MASK + RESULT,
        CAUSAL.replace("LessOrEqual", "Less") + MASK + RESULT,
        CAUSAL + MASK.replace("And", "Or") + RESULT,
        f"{CAUSAL + MASK} f = Cast<to=1>(m)\n y = Attention(q, k, v, f)",
        CAUSAL + MASK + RESULT.replace("(q", "<is_causal=1>(q"),
        RESULT.replace(", m", ""),
    ],
    ids=["padding", "order", "less", "or", "floats", "causal", "no mask"],
)
def test_declined(text: str) -> None:
    """Padding alone hides no key from all rows, and numbers are added to the scores."""
    assert not slice_hidden_keys(program(text)).modified
