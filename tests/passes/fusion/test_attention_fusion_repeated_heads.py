"""Removal of repeated key heads."""

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.passes.fusion.attention_fusion import fold_repeated_heads, fold_repeats_into_rows
from tests.compare import assert_close
from tests.passes.checking import check, model, origins

KNOWN = (
    "<int64[1] two = {2}, int64[5] copies = {1,1,3,1,1}, int64[5] turned = {1,3,1,1,1},"
    " int64[4] six = {0,6,-1,3}, float[N,2,3,M,3] k4, float[N,2,3,M,3] v4, float[N,6,M,3] k5, float[N,6,M,3] v5>"
)
KEYS, VALUES = (f"{x}3 = Unsqueeze({x}, two)\n {x}4 = Expand({x}3, copies)\n {x}5 = Reshape({x}4, six)\n" for x in "kv")
REPEATED = KEYS + VALUES


def test_shared_key_heads() -> None:
    """Three query heads share each key head."""
    program = model(f"""g (float[N,6,L,3] q, float[N,2,M,3] k, float[N,2,M,3] v) => (float[N,6,L,3] y) {KNOWN} {{
      {REPEATED} y = Attention(q, k5, v5)
    }}""", opset=23)  # fmt: skip
    args = [torch.randn(2, 6, 4, 3), torch.randn(2, 2, 5, 3), torch.randn(2, 2, 5, 3)]
    check(program, fold_repeated_heads, args, ["Attention"])


def test_tiled_key_heads_are_declined() -> None:
    """Repeating all heads in turn is another order than repeating each head in succession."""
    turned = KNOWN.replace("two = {2}", "two = {1}").replace("{1,1,3", "{1,3,1").replace("N,2,3", "N,3,2")
    program = model(f"""g (float[N,6,L,3] q, float[N,2,M,3] k, float[N,2,M,3] v) => (float[N,6,L,3] y) {turned} {{
      {REPEATED} y = Attention(q, k5, v5)
    }}""", opset=23)  # fmt: skip
    assert not fold_repeated_heads(program).modified


def test_keys_that_are_returned_keep_their_heads() -> None:
    """The returned keys of a cache have as many heads as the keys that Attention reads."""
    program = model(f"""g (float[N,6,L,3] q, float[N,2,M,3] k, float[N,2,M,3] v) =>
      (float[N,6,L,3] y, float[N,6,M,3] z, float[N,6,M,3] u) {KNOWN} {{ {REPEATED} y, z, u = Attention(q, k5, v5)
    }}""", opset=23)  # fmt: skip
    assert not fold_repeated_heads(program).modified


@pytest.mark.parametrize("length", ["L", "4"])
def test_rows(length: str) -> None:
    """Both products of attention: the keys are transposed after the repetition. A static length needs no -1."""
    known = KNOWN[:-1] + f", float[N,6,3,M] t, float[N,6,{length},M] a, float[N,6,{length},M] b>"
    program = model(f"""g (float[N,6,{length},3] q, float[N,2,M,3] k, float[N,2,M,3] v) => (float[N,6,{length},3] y)
      {known} {{
      {REPEATED} t = Transpose<perm=[0,1,3,2]>(k5)\n a = MatMul(q, t)\n b = Softmax(a)\n y = MatMul(b, v5)
    }}""")  # fmt: skip
    args = [torch.randn(2, 6, 4, 3), torch.randn(2, 2, 5, 3), torch.randn(2, 2, 5, 3)]
    product = ["Reshape", "MatMul", "Reshape"]
    check(program, fold_repeats_into_rows, args, ["Transpose", *product, "Softmax", *product])
    assert origins(program, "y") == {"%v3", "%v4", "%v5", "%y"}
    shapes = [value.const_value.numpy().tolist() for value in program.graph.initializers.values() if value.uses()]
    assert ([0, 2, 12, 0] in shapes) == (length == "4")


@pytest.mark.parametrize(("sink", "is_folded"), [("s = Concat<axis=-1>(a, extra)", True), ("s = Mul(a, half)", False)])
def test_rows_where_attention_exists(sink: str, is_folded: bool) -> None:
    """Attention shares the heads itself, but it has no attention sink: an extra column of the scores."""
    known = KNOWN[:-1] + ", float half = {0.5}, float[N,6,L,O] s, float[N,6,L,O] b>"
    program = model(f"""g (float[N,6,L,3] q, float[N,2,M,3] k, float[N,2,O,3] v, float[N,6,L,1] extra) =>
      (float[N,6,L,3] y) {known.replace("N,2,3,M,3] v4", "N,2,3,O,3] v4").replace("N,6,M,3] v5", "N,6,O,3] v5")} {{
      {REPEATED} t = Transpose<perm=[0,1,3,2]>(k5)\n a = MatMul(q, t)\n {sink}\n b = Softmax(s)\n y = MatMul(b, v5)
    }}""", opset=23)  # fmt: skip
    assert fold_repeats_into_rows(program).modified == is_folded


@pytest.mark.parametrize(
    "text",
    [
        "t = Transpose<perm=[1,0,3,2]>(k5)\n y = MatMul(q, t)",
        "t = Transpose<perm=[0,1,3,2]>(k5)\n r = ReduceMean<keepdims=1>(q, one)\n y = MatMul(r, t)",
        "t = Transpose<perm=[0,1,3,2]>(q)\n y = MatMul(k5, t)",
    ],
)
def test_rows_declined(text: str) -> None:
    """A Transpose that moves heads, queries whose heads broadcast, and a repetition in the first operand."""
    known = KNOWN.replace("<", "<int64[1] one = {1}, float[N,1,M,3] r, ")
    program = model(f"g (float[N,6,M,3] q, float[N,2,M,3] k) => (float[A,B,M,M] y) {known} {{ {KEYS}{text} }}")
    assert not fold_repeats_into_rows(program).modified


class Grouped(nn.Module):
    """Grouped-query attention as transformers computes it (eager, or with repeated heads), or by enable_gqa."""

    def __init__(self, form: str, groups: int) -> None:
        super().__init__()
        self.form, self.groups = form, groups

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """q is (batch, length, 8), k and v are (batch, total, 8 / groups)."""
        batch, length, _ = q.shape
        q, k, v = (x.view(batch, x.shape[1], -1, 2).transpose(1, 2) for x in (q, k, v))
        if self.form == "enable_gqa":
            out = nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        else:
            k, v = (x[:, :, None].expand(-1, -1, self.groups, -1, -1).flatten(1, 2) for x in (k, v))
            if self.form == "sdpa":
                out = nn.functional.scaled_dot_product_attention(q, k, v, mask)
            else:
                scores = q @ k.transpose(2, 3) * 0.5
                scores = scores if mask is None else scores.masked_fill(~mask, torch.finfo(q.dtype).min)
                out = scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v
        return out.transpose(1, 2).reshape(batch, length, 8)


@pytest.mark.parametrize(
    ("form", "groups", "dtype", "is_masked"),
    [
        ("sdpa", 1, torch.float32, True),
        ("sdpa", 2, torch.float16, True),
        ("sdpa", 4, torch.float32, False),
        ("eager", 2, torch.float32, True),
        ("eager", 4, torch.float16, True),
        ("enable_gqa", 2, torch.float32, False),
        ("enable_gqa", 4, torch.float32, True),
        ("enable_gqa", 4, torch.float16, True),
    ],
)
def test_heads_are_never_expanded(form: str, groups: int, dtype: torch.dtype, is_masked: bool) -> None:
    """With dynamic sizes, the results are those of eager for other sizes, and no Expand is left."""
    module = Grouped(form, groups).eval()

    def arguments(batch: int, length: int, total: int) -> tuple[Tensor, ...]:
        sizes = (length, 8), (total, 8 // groups), (total, 8 // groups)
        tensors = tuple(torch.randn(batch, *size).to(dtype) for size in sizes)
        return (*tensors, torch.rand(batch, 1, length, total) < 0.7) if is_masked else tensors

    new, all_keys = {0: "batch", 1: "length"}, {0: "batch", 1: "total"}
    shapes = (new, all_keys, all_keys, {0: "batch", 2: "length", 3: "total"})[: 3 + is_masked]
    program = fx_onnx.export(module, arguments(2, 5, 6), dynamic_shapes=shapes, opset_version=20)
    assert not {"Expand", "Tile"} & {node.op_type for node in program.model.graph}
    for sizes in ((2, 5, 6), (3, 1, 9), (1, 7, 7)):
        args = arguments(*sizes)
        assert_close(program(*args), module(*args))


def test_static_sizes() -> None:
    """The decoding of one token with static sizes."""
    module, args = Grouped("sdpa", 2).eval(), (torch.randn(1, 1, 8), torch.randn(1, 9, 4), torch.randn(1, 9, 4))
    program = fx_onnx.export(module, args, opset_version=20)
    assert "Expand" not in {node.op_type for node in program.model.graph}
    assert_close(program(*args), module(*args))


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
