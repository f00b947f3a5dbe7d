"""Normalizations."""

import onnx_ir as ir
import onnxruntime
import pytest
import torch
import torch.nn.functional as F

from fx_onnx.onnx_model import metadata
from fx_onnx.passes.legalization.legalize import Legalize64Bit
from fx_onnx.passes.legalization.normalizations import legalize_group_norm
from tests.compare import assert_close
from tests.passes.checking import check, model, run


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ("2,6,4,5", [(2, 6, 4, 5)]),
        ("N,6,4", [(3, 6, 4), (0, 6, 4)]),
        ("N,6,H,W", [(3, 6, 4, 5), (0, 6, 4, 5), (2, 6, 0, 5)]),
        ("2,6,0", [(2, 6, 0)]),
    ],
)
def test_group_norms(shape: str, sizes: list[tuple[int, ...]]) -> None:
    """ONNX Runtime's expansion of GroupNormalization fails if an axis is empty."""
    scale, bias = torch.rand(6), torch.rand(6)
    text = f"g (float[{shape}] x) => (y) {{ y = GroupNormalization<num_groups=3, epsilon=0.25>(x, scale, bias) }}"
    found = model(text, {"scale": scale, "bias": bias}, opset=21)
    legalize_group_norm(found)
    assert "InstanceNormalization" in [node.op_type for node in found.graph]
    session = onnxruntime.InferenceSession(ir.to_proto(found).SerializeToString())
    for size in sizes:
        x = torch.randn(size)
        (result,) = session.run(None, {"x": x.numpy()})
        want = F.group_norm(x, 3, scale, bias, 0.25) if x.numel() else x  # torch 2.15 refuses empty images
        assert_close(torch.from_numpy(result), want)


def test_group_norms_of_other_dtypes_and_explicit_ones_stay() -> None:
    text = "g ({0}[2,6,4] x, {0}[6] s, {0}[6] b) => ({0}[2,6,4] y) {{ y = GroupNormalization<num_groups=3>(x, s, b) }}"
    inputs = [torch.rand(2, 6, 4).double(), torch.rand(6).double(), torch.rand(6).double()]
    check(model(text.format("double"), opset=21), legalize_group_norm, inputs, ["GroupNormalization"])
    explicit = model(text.format("float"), opset=21)
    explicit.graph[0].meta[metadata.EXPLICIT] = True
    check(explicit, legalize_group_norm, [each.float() for each in inputs], ["GroupNormalization"])


@pytest.mark.parametrize("shape", ["3,4,5,6", "N,4,H,W", "N,C,H,W"])
def test_instance_norms_of_float64(shape: str) -> None:
    """The epsilon is the number of float64 whose float32 the attribute has."""
    text = f"""g (double[{shape}] x, double[4] s, double[4] b) => (double[{shape}] y) {{
      y = InstanceNormalization<epsilon=0.001>(x, s, b)
    }}"""
    program = model(text)
    assert Legalize64Bit()(program).modified
    assert "InstanceNormalization" not in [node.op_type for node in program.graph]
    x, scale, bias = (torch.randn(sizes, dtype=torch.float64) for sizes in ((3, 4, 5, 6), 4, 4))
    want = F.instance_norm(x * 0.01, None, None, scale, bias, eps=0.001)
    torch.testing.assert_close(run(program, [x * 0.01, scale, bias])[0], want, rtol=1e-12, atol=1e-13)


def test_instance_norms_of_float32_stay() -> None:
    text = "g (float[N,4,H] x, float[4] s) => (float[N,4,H] y) { y = InstanceNormalization(x, s, s) }"
    assert not Legalize64Bit()(model(text)).modified
