"""The bias of a Gemm in float16 as an Add."""

import torch

from fx_onnx.passes.legalization.gemm_bias import LegalizeGemmBias
from tests.passes.checking import check, model

X, W, B = torch.tensor([[1.0, 2.0], [0.5, -4.0]]), torch.tensor([[3.0, 1.0], [2.0, 0.25]]), torch.tensor([1.0, -1.0])


def _text(dtype: str, attributes: str = "") -> str:
    graph = f"g ({dtype}[M,2] x, {dtype}[2,2] w, {dtype}[2] b) => ({dtype}[M,2] y)"
    return f"{graph} {{ y = Gemm<transB=1{attributes}>(x, w, b) }}"


def test_float16() -> None:
    changed = check(model(_text("float16")), LegalizeGemmBias(), [X.half(), W.half(), B.half()], ["Gemm", "Add"])
    assert changed.graph.node(0).attributes["transB"].as_int() == 1


def test_a_factor_and_float32_stay() -> None:
    inputs = [X.half(), W.half(), B.half()]
    check(model(_text("float16", ", beta=0.5")), LegalizeGemmBias(), inputs, ["Gemm"])
    check(model(_text("float")), LegalizeGemmBias(), [X, W, B], ["Gemm"])
