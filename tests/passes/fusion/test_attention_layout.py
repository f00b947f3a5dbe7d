"""Folding of layout changes into Attention."""

import pytest
import torch

import fx_onnx
from fx_onnx.passes.fusion.attention_layout import FoldHeadReshapes, FoldRepeatedHeads
from tests.compare import assert_close
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
    check(program, FoldHeadReshapes(), [Q, K, V, torch.ones(4, 5, dtype=torch.bool).tril()], ["Attention"])
    assert origins(program, "y") == {"%a", "%b", "%y"}


def test_a_merge_that_flattens_more() -> None:
    """A Reshape that also flattens batch and length stays, after the Attention."""
    program = model(f"""g ({INPUTS}) => (float[K,6] y) {CONSTANTS} {{
      {PARTED} a = Attention<scale=0.7>(q2, k2, v2)\n b = Transpose<perm=[0,2,1,3]>(a)\n y = Reshape(b, flat)
    }}""", opset=23)  # fmt: skip
    check(program, FoldHeadReshapes(), [Q, K, V], ["Attention", "Reshape"])


def test_packed_query_key_and_value() -> None:
    """ViT unbinds one packed tensor. The Gathers become Splits, which common-subexpression elimination merges."""
    program = model(f"""g (float[N,L,18] x) => (float[N,L,6] y) {CONSTANTS} {{
      p = Reshape(x, packed)\n t = Transpose<perm=[2,0,3,1,4]>(p)\n q = Gather(t, first)\n k = Gather(t, second)
      v = Gather(t, third)\n a = Attention(q, k, v)\n {JOINED}
    }}""", opset=23)  # fmt: skip
    check(program, FoldHeadReshapes(), [torch.randn(2, 4, 18)], ["Split"] * 3 + ["Attention"])


@pytest.mark.parametrize("attributes", ["", "<interleaved=1>", "<rotary_embedding_dim=2>"])
def test_rotary_embedding_before_attention(attributes: str) -> None:
    """A RotaryEmbedding between split and Attention takes the 3-D layout and keeps its attributes."""
    inputs = INPUTS.replace("[N,M", "[N,L") + ", float[N,L,1] c, float[N,L,1] s"
    heads = CONSTANTS.replace("{0,0,2,3}", "{0,0,3,2}")
    program = model(f"""g ({inputs}) => (float[N,L,6] y) {heads} {{
      {PARTED} r = RotaryEmbedding{attributes}(q2, c, s)\n a = Attention(r, k2, v2)\n {JOINED}
    }}""", opset=23)  # fmt: skip
    args = [Q, K[:, :4], V[:, :4], torch.rand(2, 4, 1), torch.rand(2, 4, 1)]
    check(program, FoldHeadReshapes(), args, ["RotaryEmbedding", "Attention"])


@pytest.mark.parametrize(
    "text",
    [
        f"{PARTED} a = Attention(q2, k2, v2)\n b = Transpose<perm=[0,2,1,3]>(a)\n c = Neg(a)\n y = Reshape(b, rows)",
        f"{PARTED.replace('[0,2,1,3]>(v', '[0,2,1,3]>(w')} a = Attention(q2, k2, v2)\n {JOINED}",
        f"{PARTED} a = Attention(q2, k2, v2)\n b = Transpose<perm=[2,0,1,3]>(a)\n y = Reshape(b, rows)",
    ],
)
def test_layout_declined(text: str) -> None:
    """A second consumer, values that were not split, and another permutation."""
    program = model(f"""g ({INPUTS}, float[N,M,2,3] w1) => (float[N,L,6] y) {CONSTANTS} {{ {text} }}""", opset=23)
    assert not FoldHeadReshapes()(program).modified


REPEATED = "".join(
    f"{x}3 = Unsqueeze({x}, two)\n {x}4 = Expand({x}3, copies)\n {x}5 = Reshape({x}4, six)\n" for x in "kv"
)


def test_shared_key_heads() -> None:
    """Three query heads share each key head."""
    known = ", float[N,2,3,M,3] k4, float[N,2,3,M,3] v4, float[N,6,M,3] k5, float[N,6,M,3] v5>"
    repeating = CONSTANTS.replace(">", known)
    program = model(f"""g (float[N,6,L,3] q, float[N,2,M,3] k, float[N,2,M,3] v) => (float[N,6,L,3] y) {repeating} {{
      {REPEATED} y = Attention(q, k5, v5)
    }}""", opset=23)  # fmt: skip
    args = [torch.randn(2, 6, 4, 3), torch.randn(2, 2, 5, 3), torch.randn(2, 2, 5, 3)]
    check(program, FoldRepeatedHeads(), args, ["Attention"])


def test_tiled_key_heads_are_declined() -> None:
    """Repeating all heads in turn is another order than repeating each head in succession."""
    known = ", float[N,3,2,M,3] k4, float[N,3,2,M,3] v4, float[N,6,M,3] k5, float[N,6,M,3] v5>"
    turned = CONSTANTS.replace("{2}", "{1}").replace("{1,1,3", "{1,3,1").replace(">", known)
    program = model(f"""g (float[N,6,L,3] q, float[N,2,M,3] k, float[N,2,M,3] v) => (float[N,6,L,3] y) {turned} {{
      {REPEATED} y = Attention(q, k5, v5)
    }}""", opset=23)  # fmt: skip
    assert not FoldRepeatedHeads()(program).modified


def test_keys_that_are_returned_keep_their_heads() -> None:
    """The returned keys of a cache have as many heads as the keys that Attention reads."""
    known = ", float[N,2,3,M,3] k4, float[N,2,3,M,3] v4, float[N,6,M,3] k5, float[N,6,M,3] v5>"
    repeating = CONSTANTS.replace(">", known)
    program = model(f"""g (float[N,6,L,3] q, float[N,2,M,3] k, float[N,2,M,3] v) =>
      (float[N,6,L,3] y, float[N,6,M,3] z, float[N,6,M,3] u) {repeating} {{ {REPEATED} y, z, u = Attention(q, k5, v5)
    }}""", opset=23)  # fmt: skip
    assert not FoldRepeatedHeads()(program).modified


def test_from_torch() -> None:
    """Grouped-query attention of a transformer layer becomes one node, with dynamic sizes."""

    class Grouped(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            batch, length, _ = q.shape
            query = q.view(batch, length, 4, 2).transpose(1, 2)
            key, value = (
                x.view(batch, length, 2, 2).transpose(1, 2)[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2)
                for x in (k, v)
            )
            out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            return out.transpose(1, 2).reshape(batch, length, 8)

    module = Grouped().eval()
    args = (torch.randn(2, 5, 8), torch.randn(2, 5, 4), torch.randn(2, 5, 4))
    dims = {0: "batch", 1: "length"}
    program = fx_onnx.export(module, args, dynamic_shapes=(dims, dims, dims), opset_version=23)
    assert [node.op_type for node in program.model.graph] == ["Attention"]
    longer = (torch.randn(3, 7, 8), torch.randn(3, 7, 4), torch.randn(3, 7, 4))
    assert_close(program(*longer), module(*longer))
