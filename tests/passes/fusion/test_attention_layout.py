"""Folding of layout changes into Attention."""

import pytest
import torch

from fx_onnx.passes.fusion.attention_layout import fold_head_reshapes
from tests.passes.checking import check, model, origins

CONSTANTS = (
    "<int64[4] heads = {0,0,2,3}, int64[3] rows = {0,0,6}, int64[2] flat = {-1,6}, int64[1] two = {2},"
    " int64[5] copies = {1,1,3,1,1}, int64[4] six = {0,6,-1,3}, int64[5] packed = {0,0,3,2,3}, int64 first = {0},"
    " int64 second = {1}, int64 third = {-1}>"
)
PARTED = "".join(f"{x}1 = Reshape({x}, heads)\n {x}2 = Transpose<perm=[0,2,1,3]>({x}1)\n " for x in "qkv")
JOINED = "b = Transpose<perm=[0,2,1,3]>(a)\n y = Reshape(b, rows)"
INPUTS = "float[N,L,6] q, float[N,M,6] k, float[N,M,6] v"
Q, K, V = torch.randn(2, 4, 6), torch.randn(2, 5, 6), torch.randn(2, 5, 6)


def test_split_and_merge_are_folded() -> None:
    """Four Reshapes and four Transposes are folded; the mask stays."""
    program = model(f"""g ({INPUTS}, bool[L,M] mask) => (float[N,L,6] y) {CONSTANTS} {{
      {PARTED} a = Attention<scale=0.5>(q2, k2, v2, mask)\n {JOINED}
    }}""", opset=23)  # fmt: skip
    check(program, fold_head_reshapes, [Q, K, V, torch.ones(4, 5, dtype=torch.bool).tril()], ["Attention"])
    assert origins(program, "y") == {"%a", "%b", "%y"}


def test_a_merge_that_flattens_more() -> None:
    """A Reshape that also flattens batch and length stays, after the Attention."""
    program = model(f"""g ({INPUTS}) => (float[K,6] y) {CONSTANTS} {{
      {PARTED} a = Attention<scale=0.7>(q2, k2, v2)\n b = Transpose<perm=[0,2,1,3]>(a)\n y = Reshape(b, flat)
    }}""", opset=23)  # fmt: skip
    check(program, fold_head_reshapes, [Q, K, V], ["Attention", "Reshape"])


def test_packed_query_key_and_value() -> None:
    """ViT unbinds one packed tensor. The Gathers become Splits, which common-subexpression elimination merges."""
    program = model(f"""g (float[N,L,18] x) => (float[N,L,6] y) {CONSTANTS} {{
      p = Reshape(x, packed)\n t = Transpose<perm=[2,0,3,1,4]>(p)\n q = Gather(t, first)\n k = Gather(t, second)
      v = Gather(t, third)\n a = Attention(q, k, v)\n {JOINED}
    }}""", opset=23)  # fmt: skip
    check(program, fold_head_reshapes, [torch.randn(2, 4, 18)], ["Split"] * 3 + ["Attention"])


@pytest.mark.parametrize("attributes", ["", "<interleaved=1>", "<rotary_embedding_dim=2>"])
def test_rotary_embedding_before_attention(attributes: str) -> None:
    """A RotaryEmbedding between split and Attention takes the 3-D layout and keeps its attributes."""
    inputs = INPUTS.replace("[N,M", "[N,L") + ", float[N,L,1] c, float[N,L,1] s"
    heads = CONSTANTS.replace("{0,0,2,3}", "{0,0,3,2}")
    program = model(f"""g ({inputs}) => (float[N,L,6] y) {heads} {{
      {PARTED} r = RotaryEmbedding{attributes}(q2, c, s)\n a = Attention(r, k2, v2)\n {JOINED}
    }}""", opset=23)  # fmt: skip
    args = [Q, K[:, :4], V[:, :4], torch.rand(2, 4, 1), torch.rand(2, 4, 1)]
    check(program, fold_head_reshapes, args, ["RotaryEmbedding", "Attention"])


def test_a_rotary_embedding_of_normalized_heads() -> None:
    """The Reshape of the heads is before the RotaryEmbedding that reads it."""
    inputs = INPUTS.replace("[N,M", "[N,L") + ", float[N,L,1] c, float[N,L,1] s, float[2] w"
    heads, text = CONSTANTS.replace("{0,0,2,3}", "{0,0,3,2}"), PARTED.replace("(q1)", "(n)")
    text = text.replace("q2 =", "n = RMSNormalization(q1, w)\n q2 =")
    program = model(f"""g ({inputs}) => (float[N,L,6] y) {heads} {{
      {text} r = RotaryEmbedding(q2, c, s)\n a = Attention(r, k2, v2)\n {JOINED}
    }}""", opset=23)  # fmt: skip
    args = [Q, K[:, :4], V[:, :4], torch.rand(2, 4, 1), torch.rand(2, 4, 1), torch.rand(2)]
    check(program, fold_head_reshapes, args, ["Reshape", "RMSNormalization", "Reshape", "RotaryEmbedding", "Attention"])


def test_heads_that_were_not_split() -> None:
    """A Reshape merges the heads instead of the Transpose."""
    text = PARTED.replace("[0,2,1,3]>(v", "[0,2,1,3]>(w")
    program = model(f"""g ({INPUTS}, float[N,M,2,3] w1) => (float[N,L,6] y) {CONSTANTS} {{
      {text} a = Attention(q2, k2, v2)\n {JOINED}
    }}""", opset=23)  # fmt: skip
    check(program, fold_head_reshapes, [Q, K, V, torch.randn(2, 5, 2, 3)], ["Reshape", "Reshape", "Attention"])


@pytest.mark.parametrize("norm", ["before", "after"])
def test_a_norm_of_each_head(norm: str) -> None:
    """Qwen 3 computes it before the heads and the length are swapped, Gemma 3 after that."""
    text = PARTED.replace("(q1)", "(n)").replace("q2", "q3").replace("q3 =", "n = RMSNormalization(q1, w)\n q3 =")
    if norm == "after":
        text = PARTED + "q3 = RMSNormalization(q2, w)\n "
    program = model(f"""g ({INPUTS}, float[3] w) => (float[N,L,6] y) {CONSTANTS} {{
      {text} a = Attention(q3, k2, v2)\n {JOINED}
    }}""", opset=23)  # fmt: skip
    wanted = ["Reshape", "RMSNormalization", "Reshape", "Attention"]
    check(program, fold_head_reshapes, [Q, K, V, torch.rand(3)], wanted)


@pytest.mark.parametrize(
    "text",
    [
        f"{PARTED} a = Attention(q2, k2, v2)\n b = Transpose<perm=[0,2,1,3]>(a)\n c = Neg(a)\n y = Reshape(b, rows)",
        f"{PARTED.replace('[0,2,1,3]>(v', '[1,2,0,3]>(w')} a = Attention(q2, k2, v2)\n {JOINED}",
        f"{PARTED} a = Attention(q2, k2, v2)\n b = Transpose<perm=[2,0,1,3]>(a)\n y = Reshape(b, rows)",
    ],
)
def test_layout_declined(text: str) -> None:
    """A second consumer, values whose heads are another axis, and another permutation."""
    program = model(f"""g ({INPUTS}, float[N,M,2,3] w1) => (float[N,L,6] y) {CONSTANTS} {{ {text} }}""", opset=23)
    assert not fold_head_reshapes(program).modified
