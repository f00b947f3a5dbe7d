"""Fusion of a residual sum and its norm."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.passes.fusion.skip_norm_fusion import FuseSkipNorm
from tests.passes.checking import check, model, origins

TYPES = "float[N,S,8] x, float[N,S,8] y"
NORM = "s = Add(x, y)\n n = RMSNormalization<epsilon=0.01>(s, w)\n"


def sums(nodes: str, outputs: str = "float[N,S,8] n", types: str = TYPES) -> ir.Model:
    return model(f"g ({types}) => ({outputs}) {{ {nodes} }}", {"w": torch.rand(8) + 0.5}, opset=23)


def test_fused() -> None:
    """The sum is read by another node too, or by none, or is an output of the graph."""
    inputs = list(torch.randn(2, 2, 3, 8))
    fused = "SkipSimplifiedLayerNormalization"
    both = sums(NORM + "z = Mul(n, s)", "float[N,S,8] z")
    check(both, FuseSkipNorm(), inputs, [fused, "Mul"])
    assert both.graph[0].domain == "com.microsoft" and both.graph.opset_imports["com.microsoft"] == 1
    alone = check(sums(NORM), FuseSkipNorm(), inputs, [fused])
    assert origins(alone, "n") == {"%s", "%n"}
    check(sums(NORM, "float[N,S,8] s, float[N,S,8] n"), FuseSkipNorm(), inputs, [fused])
    two = NORM + "t = Add(s, n)\n m = RMSNormalization(t, w)\n z = Mul(m, t)"
    check(sums(two, "float[N,S,8] z"), FuseSkipNorm(), inputs, [fused, fused, "Mul"])


@pytest.mark.parametrize(
    "program",
    [
        sums(NORM, types="float[N,S,8] x, float[S,8] y"),  # broadcasts
        sums(NORM, types="float[8] x, float[8] y", outputs="float[8] n"),
        sums(NORM.replace("epsilon=0.01", "axis=1"), types=f"{TYPES}, float[S,8] w2"),
        sums("v = Neg(w)\n" + NORM.replace("(s, w)", "(s, v)")),
        sums(NORM.replace("Add", "Sub")),
    ],
)
def test_declined(program: ir.Model) -> None:
    """Operands that broadcast, another rank or axis, a computed weight, and no sum."""
    assert not FuseSkipNorm()(program).modified
