"""Fusion of attention."""

from collections.abc import Sequence

import pytest
import torch

from fx_onnx.passes.fusion.attention_fusion import fuse_attention
from tests.passes.checking import check, model, origins

CONSTANTS = "<float c = {0.3}, float r = {2.5}, float[1] f = {0.5}>"
INPUTS = "float[N,2,L,3] q, float[N,2,M,3] k, float[N,2,M,5] v"
ARGS = [torch.randn(2, 2, 4, 3), torch.randn(2, 2, 6, 3), torch.randn(2, 2, 6, 5)]
SWAPPED = "t = Transpose<perm=[0,1,3,2]>(k)\n"
REST = "w = Softmax<axis=-1>(s)\n y = MatMul(w, v)"


@pytest.mark.parametrize(
    ("text", "operators", "scale"),
    [
        (f"a = Mul(q, c)\n {SWAPPED} s = MatMul(a, t)\n {REST}", ["Attention"], 0.3),
        (f"{SWAPPED} a = MatMul(q, t)\n s = Div(a, r)\n {REST}", ["Attention"], 0.4),
        (f"{SWAPPED} a = MatMul(q, t)\n b = Mul(c, a)\n s = Add(b, m)\n {REST}", ["Attention"], 0.3),
        (f"{SWAPPED} a = MatMul(q, t)\n s = Add(m, a)\n {REST}", ["Attention"], 1.0),
        (f"n = Neg(k)\n {SWAPPED.replace('k', 'n')} s = MatMul(q, t)\n {REST}", ["Neg", "Attention"], 1.0),
    ],
)
def test_fused(text: str, operators: Sequence[str], scale: float) -> None:
    """The scale may be before or after the product, the mask may be either operand, and both may be absent."""
    program = model(f"g ({INPUTS}, float[2,L,M] m) => (float[N,2,L,5] y) {CONSTANTS} {{ {text} }}", opset=23)
    check(program, fuse_attention, [*ARGS, torch.randn(2, 4, 6)], operators)
    assert program.graph[-1].attributes["scale"].value == pytest.approx(scale)
    assert {"%w", "%y"} <= origins(program, "y")


@pytest.mark.parametrize("inner", ["d = Div(s1, cap)", "d = Mul(s1, third)", "d = Mul(s1, c)"])
def test_softcap(inner: str) -> None:
    """Gemma 2 limits the scores before it adds the mask; the factor before the Tanh may be another one."""
    constants = CONSTANTS.replace(">", ", float cap = {3.0}, float third = {0.33333334}>")
    program = model(f"""g ({INPUTS}, float[L,M] m) => (float[N,2,L,5] y) {constants} {{
      {SWAPPED} a = MatMul(q, t)\n s1 = Mul(a, r)\n {inner}\n h = Tanh(d)\n e = Mul(h, cap)\n s = Add(e, m)\n {REST}
    }}""", opset=23)  # fmt: skip
    mask = torch.randn(4, 6).masked_fill(torch.rand(4, 6) < 0.3, -torch.inf)
    mask[:, 0] = 0  # a row without a key is NaN before and 0 after
    check(program, fuse_attention, [*ARGS, mask], ["Attention"])
    assert program.graph[0].attributes["softcap"].value == 3.0
    assert {"%d", "%h", "%e", "%y"} <= origins(program, "y")


SLIDING = "k = Concat<axis=2>(p, n)\n t = Transpose<perm=[0,1,3,2]>(k)\n a = MatMul(q, t)\n s = Add(a, m)\n"
SLIDING_INPUTS = "float[N,2,L,3] q, float[N,2,P,3] p, float[N,2,L,3] n, float[N,2,S,5] v"
SLIDING_KNOWN = "<float[N,2,3,S] t, float[N,2,L,S] a, float[N,2,L,S] s, float[N,2,L,S] w>"


def test_a_mask_whose_dims_have_other_names() -> None:
    """The mask of a sliding window is expanded, because its length is only known to be equal or 1."""
    for leading, mask in (("N,1,", (2, 1, 4, 6)), ("", (4, 6))):
        program = model(f"""g ({SLIDING_INPUTS}, float[{leading}L,W] m) => (float[N,2,L,5] y) {SLIDING_KNOWN} {{
          {SLIDING} {REST}
        }}""", opset=23)  # fmt: skip
        args = [ARGS[0], torch.randn(2, 2, 2, 3), torch.randn(2, 2, 4, 3), ARGS[2], torch.randn(mask)]
        check(program, fuse_attention, args, ["Concat", "Shape", "Shape", "Add", "Concat", "Expand", "Attention"])


LOW = -1e38  # ONNX Runtime takes the lowest number for minus infinity: see legalize_lowest_masks


@pytest.mark.parametrize(("length", "queries"), [("L", ["Shape", "Concat"]), ("4", [])])
def test_two_masks_one_of_which_broadcasts_over_the_queries(length: str, queries: list[str]) -> None:
    """A bias of the positions and a mask of padding that hides all keys of one row, or that is not finite."""
    for fill, bias in ((LOW, "1,2,{},M"), (-torch.inf, "{},M"), (LOW, "1,2,1,M")):
        inputs = INPUTS.replace("L", length) + f", float[{bias.format(length)}] b, float[N,1,1,M] m"
        program = model(f"""g ({inputs}) => (float[N,2,{length},5] y) {{
          {SWAPPED} a = MatMul(q, t)\n d = Add(a, b)\n s = Add(d, m)\n {REST}
        }}""", opset=23)  # fmt: skip
        mask = torch.zeros(2, 1, 1, 6)
        mask[1, ..., 0 if fill == LOW else 2 :] = fill
        sizes = {"1,2,{},M": (1, 2, 4, 6), "{},M": (4, 6), "1,2,1,M": (1, 2, 1, 6)}[bias]
        expanded = [*queries, "Expand"] if bias == "1,2,1,M" else []
        check(program, fuse_attention, [*ARGS, torch.randn(sizes), mask], ["Add", *expanded, "Attention"])


def test_two_masks_in_float16() -> None:
    """-65504 - 20 is infinite in float16, but -65504 - 20 + 20 is not if the scores are added first."""
    inputs = f"{INPUTS}, float[2,L,M] b, float[N,1,L,M] m".replace("float", "float16")
    program = model(f"""g ({inputs}) => (float16[N,2,L,5] y) {{
      {SWAPPED} a = MatMul(q, t)\n d = Add(a, b)\n s = Add(d, m)\n {REST}
    }}""", opset=23)  # fmt: skip
    assert not fuse_attention(program).modified


def test_a_mask_that_is_a_product_itself() -> None:
    """Either operand of the Add may be the scores."""
    program = model(f"""g ({INPUTS}, float[L,M] m) => (float[N,2,L,5] y) {CONSTANTS} {{
      {SWAPPED} n = Mul(m, r)\n a = MatMul(q, t)\n s = Add(n, a)\n {REST}
    }}""", opset=23)  # fmt: skip
    check(program, fuse_attention, [*ARGS, torch.randn(4, 6)], ["Mul", "Attention"])


@pytest.mark.parametrize("mask", ["N,1,L,1", "N,1,1,W", "M,1,L,W", "N,2,M,L,W"])
def test_a_mask_that_does_not_fit(mask: str) -> None:
    """A mask that broadcasts over keys, one of another length, one with another batch, and one with five axes."""
    program = model(f"""g ({SLIDING_INPUTS}, float[{mask}] m) => (float[N,2,L,5] y) {SLIDING_KNOWN} {{
      {SLIDING} {REST}
    }}""", opset=23)  # fmt: skip
    assert not fuse_attention(program).modified


def test_keys_that_come_transposed() -> None:
    """Keys from (batch, length, heads, size), or already transposed, get one Transpose to Attention's layout."""
    program = model("""g (float[N,2,L,3] q, float[N,M,2,3] k, float[N,2,3,M] c, float[N,2,M,5] v)
      => (float[N,2,L,5] y, float[N,2,L,5] z) {
      t = Transpose<perm=[0,2,3,1]>(k)\n s = MatMul(q, t)\n w = Softmax<axis=-1>(s)\n y = MatMul(w, v)
      s2 = MatMul(q, c)\n w2 = Softmax<axis=3>(s2)\n z = MatMul(w2, v)
    }""", opset=23)  # fmt: skip
    args = [ARGS[0], ARGS[1].transpose(1, 2), ARGS[1].mT, ARGS[2]]
    check(program, fuse_attention, args, ["Transpose", "Attention"] * 2)


@pytest.mark.parametrize(
    "text",
    [
        f"{SWAPPED} a = MatMul(q, t)\n s = Mul(a, o)\n {REST}",
        f"{SWAPPED} a = MatMul(q, t)\n s = Add(a, o)\n {REST}",
        f"{SWAPPED} s = MatMul(q, t)\n w = Softmax<axis=2>(s)\n y = MatMul(w, v)",
        f"{SWAPPED} s = MatMul(q, t)\n w = Softmax<axis=-1>(s)\n x = Neg(w)\n u = Add(x, w)\n y = MatMul(u, v)",
    ],
)
def test_declined(text: str) -> None:
    """A scale that is no constant, a mask that broadcasts over keys, an axis, a consumer."""
    program = model(f"g ({INPUTS}, float[N,2,L,1] o) => (float[N,2,L,5] y) {CONSTANTS} {{ {text} }}", opset=23)
    assert not fuse_attention(program).modified
