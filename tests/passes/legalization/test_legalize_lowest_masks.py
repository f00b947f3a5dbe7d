"""The lowest number in masks of Attention."""

import pytest
import torch

from fx_onnx.passes.legalization.legalize import LegalizeLowestMasks
from tests.compare import assert_close
from tests.passes.checking import model, run

LOWEST = torch.finfo(torch.float32).min
INPUTS = "float[2,2,4,3] q, float[2,2,6,3] k, float[2,2,6,5] v, float[2,1,4,6] m, bool[2,1,4,6] c, float[2,4,6] b"
CONSTANTS = f"<float zero = {{0}}, float lowest = {{{LOWEST!r}}}, int64[4] s = {{2, 2, 4, 6}}>"


def arguments(fill: float) -> list[torch.Tensor]:
    """The first text has a query that sees no key, and one that sees two."""
    visible = torch.ones(2, 1, 4, 6, dtype=torch.bool)
    visible[0, 0, 1], visible[0, 0, 2, 2:] = False, False
    mask = torch.zeros(2, 1, 4, 6).masked_fill(~visible, fill)
    return [*(torch.randn(2, 2, *sizes) for sizes in ((4, 3), (6, 3), (6, 5))), mask, visible, torch.randn(2, 4, 6)]


@pytest.mark.parametrize(
    ("mask", "operators"),
    [
        ("x = Where(c, zero, lowest)", ["Where", "Attention"]),
        ("w = Where(c, zero, lowest)\n x = Add(w, b)", ["Where", "Equal", "Where", "Add", "Attention"]),
        ("x = Identity(m)", ["Identity", "Equal", "Where", "Attention"]),
        ("x = Expand(m, s)", ["Equal", "Where", "Expand", "Attention"]),
        ("w = Where(c, m, lowest)\n x = Identity(w)", ["Where", "Identity", "Equal", "Where", "Attention"]),
        ("x = Where(c, m, lowest)", ["Equal", "Where", "Where", "Attention"]),
    ],
)
def test_a_query_without_keys_gets_the_mean(mask: str, operators: list[str]) -> None:
    """Two Attentions share one replacement."""
    text = f"{mask}\n y = Attention(q, k, v, x)\n z = Attention(q, k, v, x)"
    program = model(f"g ({INPUTS}) => (float[2,2,4,5] y, float[2,2,4,5] z) {CONSTANTS} {{ {text} }}", opset=23)
    args = arguments(LOWEST)
    before = run(program, args)
    assert LegalizeLowestMasks()(program).modified
    assert sorted(node.op_type for node in program.graph) == sorted([*operators, "Attention"])
    assert not LegalizeLowestMasks()(program).modified
    q, k, v, m, _, b = args
    weights = (q @ k.mT / 3**0.5 + (m + b if "Add" in mask else m)).softmax(-1)
    for got, wrong in zip(run(program, args), before, strict=True):
        assert_close(got, weights @ v)
        assert not wrong[0, :, 1].any(), "ONNX Runtime computes the mean now: the pass may go"


def test_minus_infinity_stays() -> None:
    program = model(f"""g ({INPUTS}) => (float[2,2,4,5] y) {{
      x = Identity(m)\n y = Attention(q, k, v, x)
    }}""", opset=23)  # fmt: skip
    args = arguments(-torch.inf)
    before = run(program, args)
    LegalizeLowestMasks()(program)
    assert_close(run(program, args), before)


@pytest.mark.parametrize(
    "text",
    ["y = Attention(q, k, v)", "y = Attention(q, k, v, c)", "x = Where(c, zero, zero)\n y = Attention(q, k, v, x)"],
)
def test_other_masks_stay(text: str) -> None:
    """No mask, a boolean one, and one of other constants."""
    program = model(f"g ({INPUTS}) => (float[2,2,4,5] y) {CONSTANTS} {{ {text} }}", opset=23)
    assert not LegalizeLowestMasks()(program).modified
