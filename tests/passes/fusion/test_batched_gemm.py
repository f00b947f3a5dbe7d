"""A Gemm between two Reshapes."""

import pytest
import torch

from fx_onnx.passes.fusion.batched_gemm import BatchGemm
from tests.passes.checking import check, model, origins

WEIGHTS = {"w": torch.randn(3, 5), "c": torch.randn(5)}
SHAPES = "<int64[2] s = {-1,3}, int64[3] t = {0,4,5}, int64[3] u = {-1,4,5}, int64[3] v = {-1,2,5}>"


@pytest.mark.parametrize(("gemm", "operators"), [("Gemm(a, w, c)", ["MatMul", "Add"]), ("Gemm(a, w)", ["MatMul"])])
def test_unfolded(gemm: str, operators: list[str]) -> None:
    """Two Reshapes less."""
    program = model(f"g (float[N,4,3] x) => (float[N,4,5] y) {SHAPES} {{ a = Reshape(x, s)\n b = {gemm}\n"
                    "y = Reshape(b, u) }", WEIGHTS)  # fmt: skip
    check(program, BatchGemm(), [torch.randn(2, 4, 3)], operators)
    assert origins(program, "y") == {"%a", "%b", "%y"}


@pytest.mark.parametrize(
    "body", ["b = Gemm<alpha=2.0>(a, w, c)\n y = Reshape(b, u)", "b = Gemm(a, w, c)\n y = Reshape(b, v)"]
)
def test_declined(body: str) -> None:
    """A factor alpha, and a Reshape to other leading axes."""
    program = model(f"g (float[N,4,3] x) => (float[M,K,5] y) {SHAPES} {{ a = Reshape(x, s)\n {body} }}", WEIGHTS)
    assert not BatchGemm()(program).modified
