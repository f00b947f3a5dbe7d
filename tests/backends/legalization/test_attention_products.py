"""Attention as products for TensorRT: the same numbers as ONNX Runtime's Attention."""

import pytest
import torch

from fx_onnx.backends.legalization.attention_products import legalize_attention
from tests.passes.checking import check, model

SHAPE = "2,4,3,8"
PRODUCTS = ["Mul", "Transpose", "MatMul", "Softmax", "MatMul"]


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("node", "more"),
    [
        ("Attention(q, k, v)", []),
        ("Attention<scale=0.5>(q, k, v)", []),
        ("Attention<softcap=2.0>(q, k, v)", ["Div", "Tanh", "Mul"]),
        ("Attention<softmax_precision=1>(q, k, v)", []),
    ],
)
def test_definition(node: str, more: list[str]) -> None:
    text = f"g (float[{SHAPE}] q, float[{SHAPE}] k, float[{SHAPE}] v) => (float[B,H,L,S] y) {{ y = {node} }}"
    check(model(text, opset=23), legalize_attention, tensors(*[(2, 4, 3, 8)] * 3), PRODUCTS + more)


@pytest.mark.parametrize("dtype", ["float", "bool"])
def test_masks(dtype: str) -> None:
    text = f"""g (float[{SHAPE}] q, float[2,4,5,8] k, float[2,4,5,8] v, {dtype}[3,5] m) => (float[B,H,L,S] y) {{
      y = Attention(q, k, v, m) }}"""
    mask = torch.randn(3, 5) if dtype == "float" else torch.ones(3, 5, dtype=torch.bool).tril(1)
    rows = ["Where", "ReduceSum", "Clip", "Mul", "Where", "Add", "Mul"]
    inputs = [*tensors((2, 4, 3, 8), *[(2, 4, 5, 8)] * 2), mask]
    check(model(text, opset=23), legalize_attention, inputs, PRODUCTS + (["Add"] if dtype == "float" else rows))


def test_causal() -> None:
    text = f"""g (float[{SHAPE}] q, float[{SHAPE}] k, float[{SHAPE}] v) => (float[B,H,L,S] y) {{
      y = Attention<is_causal=1>(q, k, v) }}"""
    changed = model(text, opset=23)
    from tests.passes.checking import check_equal

    check_equal(changed, legalize_attention, tensors(*[(2, 4, 3, 8)] * 3))
    assert "Attention" not in [node.op_type for node in changed.graph]


def test_a_past_and_shared_heads() -> None:
    text = """g (float[2,4,3,8] q, float[2,2,3,8] k, float[2,2,3,8] v, float[2,2,5,8] pk, float[2,2,5,8] pv)
      => (float[B,H,L,S] y, float[B,H,L,S] nk, float[B,H,L,S] nv) { y, nk, nv = Attention(q, k, v, , pk, pv) }"""
    inputs = tensors((2, 4, 3, 8), *[(2, 2, 3, 8)] * 2, *[(2, 2, 5, 8)] * 2)
    expected = [*PRODUCTS, "Concat", "Concat", *["Unsqueeze", "Expand", "Reshape"] * 2]
    check(model(text, opset=23), legalize_attention, inputs, expected)


def test_three_axes() -> None:
    text = """g (float[2,3,32] q, float[2,3,32] k, float[2,3,32] v) => (float[B,L,S] y) {
      y = Attention<q_num_heads=4, kv_num_heads=4>(q, k, v) }"""
    expected = [*PRODUCTS, *["Reshape", "Transpose"] * 4]
    check(model(text, opset=23), legalize_attention, tensors(*[(2, 3, 32)] * 3), expected)


@pytest.mark.parametrize(
    ("dtype", "heads", "size", "stays"),
    [("float16", 4, 16, True), ("bfloat16", 4, 16, True), ("float16", 1, 16, False), ("float16", 4, 8, False),
     ("float", 4, 16, False)],
)  # fmt: skip
def test_what_tensorrt_has_a_kernel_for(dtype: str, heads: int, size: int, stays: bool) -> None:
    shape = f"{dtype}[2,{heads},3,{size}]"
    text = f"g ({shape} q, {shape} k, {shape} v) => ({dtype}[B,H,L,S] y) {{ y = Attention(q, k, v) }}"
    assert legalize_attention(model(text, opset=23)).modified is not stays


def test_one_value_for_all_operands() -> None:
    text = "g (float16[2,4,3,16] q) => (float16[B,H,L,S] y) { y = Attention(q, q, q) }"
    assert legalize_attention(model(text, opset=23)).modified
