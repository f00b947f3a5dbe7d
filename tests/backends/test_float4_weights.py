"""Weights of 4-bit floats for runtimes that take FLOAT4E2M1."""

import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

import fx_onnx

pytest.importorskip("transformers", reason="transformers is in the extra 'test'")
VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def layer() -> tuple[nn.Module, torch.Tensor]:
    """Returns a layer with a packed weight (12, 64) and exponents for each block of 32, and the weight in floats."""
    from transformers.integrations.finegrained_fp8 import FP8Linear

    made, exponents = FP8Linear(64, 12), torch.randint(120, 130, (12, 2), dtype=torch.uint8)
    packed = torch.randint(-128, 128, (12, 32), dtype=torch.int8)
    scale = exponents.view(torch.float8_e8m0fnu)
    made.weight, made.weight_scale_inv = (nn.Parameter(tensor, requires_grad=False) for tensor in (packed, scale))
    codes = torch.stack([packed & 15, (packed >> 4) & 15], -1).flatten(-2)
    return nn.Sequential(made).eval(), VALUES[codes.long()] * scale.float().repeat_interleave(32, 1)


@pytest.mark.parametrize("target", ["reference", "tensorrt"])
@pytest.mark.parametrize("opset", [21, 23, 24])
@pytest.mark.parametrize("rank", [2, 3])
def test_float4(target: str, opset: int, rank: int) -> None:
    """Tests that a weight, which is transposed for three axes, keeps its codes."""
    (module, weight), x = layer(), torch.randn(*[2] * (rank - 1), 64)
    program = fx_onnx.export(module, (x,), opset_version=opset, target=target, verbose=False)
    dtypes = {value.dtype.name for value in program.model.graph.initializers.values()}
    assert ("FLOAT4E2M1" in dtypes, "FLOAT8E8M0" in dtypes) == (opset >= 23, opset >= 24)
    (found,) = ReferenceEvaluator(program.model_proto).run(None, {program.model.graph.inputs[0].name: x.numpy()})
    torch.testing.assert_close(torch.tensor(found), nn.functional.linear(x, weight), rtol=1e-5, atol=1e-4)
