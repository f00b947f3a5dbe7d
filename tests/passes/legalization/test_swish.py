"""Swish runs in ONNX Runtime at every opset that has the operator."""

import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fx_onnx
from fx_onnx.passes.legalization.swish import LegalizeSwish
from tests.compare import assert_close
from tests.modules import FunctionModule
from tests.passes.checking import check, model

ORT = tuple(map(int, onnxruntime.__version__.split(".")[:2]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("opset", [24, 25, 26])
def test_silu_matches_eager(opset: int, dtype: torch.dtype) -> None:
    if dtype == torch.float64 and opset > 24 and ORT < (1, 31):
        pytest.skip("ONNX Runtime before 1.31 fuses Sigmoid and Mul of float64 to an operator without a kernel")

    def scaled(x: Tensor) -> Tensor:
        return F.silu(x) + x * torch.sigmoid(1.5 * x)

    x = torch.randn(3, 4).to(dtype)
    program = fx_onnx.export(FunctionModule(scaled).eval(), (x,), opset_version=opset)
    assert_close(program(x), scaled(x))


def test_the_rewrite_keeps_alpha() -> None:
    swish = "g (float[2,3] x) => (float[2,3] y) { y = Swish<alpha=2.0>(x) }"
    check(model(swish, opset=24), LegalizeSwish(), [torch.randn(2, 3)], ["Swish"])  # ONNX Runtime inlines this one
    legalized = LegalizeSwish()(model(swish, opset=25)).model
    assert [node.op_type for node in legalized.graph] == ["Mul", "Sigmoid", "Mul"]
