"""Opset 11 → 10: each rewrite computes the same numbers."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check_equal, model

X = torch.randn(2, 3, 4)
FLOATS = torch.tensor([-2.5, -0.5, 0.5, 1.5, 2.5, 3.0, -1e-10, 1e10, float("nan"), float("inf"), -float("inf")])
INTEGERS = torch.tensor([5, -(2**62), 3, 2**40 + 1, 2**40, -1, 2**62, -(2**62) - 1, 0])


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("(float[A,B,C] x) => (float[A,B,D] y) { y = ReduceSum<axes=[-1]>(x) }", [X]),
        ("(float[A,B,C] x) => (float[A,B,C] y) { y = Softmax<axis=-1>(x) }", [X]),
        ("(float[A,B,C] x) => (float[A,B,1,C] y) { y = Unsqueeze<axes=[-2]>(x) }", [X]),
        ("(float[A,B,C] x) => (float[A,B,D] y) <int64[1] s = {1}, int64[1] e = {3}, int64[1] a = {-1}>"
         " { y = Slice(x, s, e, a) }", [X]),
        ("(float[A,B,C] x, int64[N] i) => (float[A,N,C] y) { y = Gather<axis=-2>(x, i) }",
         [X, torch.tensor([-1, 0, 2, -3])]),
        ("(float[A,B,4] x) => (float[A,B] y) <int64 i = {-2}> { y = Gather<axis=-1>(x, i) }", [X]),
        ("(float[A,B,C] x, int32[N] i) => (float[A,N,C] y) { y = Gather<axis=1>(x, i) }",
         [X, torch.tensor([-1, 2], dtype=torch.int32)]),
        ("(float[A,B,C] x, int64[D,E,F] i) => (float[D,E,F] y) { y = GatherElements<axis=-2>(x, i) }",
         [X, torch.randint(-3, 3, (2, 5, 3))]),
        ("(float[A] x, int64[D] i) => (float[D] y) { y = GatherElements(x, i) }", [X[0, 0], torch.tensor([3, -1])]),
        ("(float[A,B,C] x, int64[N,M,2] i) => (float[N,M,C] y) { y = GatherND(x, i) }",
         [X, torch.randint(-2, 2, (3, 2, 2))]),
        ("(float[A,B,C] x, int64[N,1] i) => (float[N,B,C] y) { y = GatherND(x, i) }", [X, torch.tensor([[-1], [0]])]),
        ("(float[A,B,C] x, int64[D,E,F] i, float[D,E,F] u) => (float[A,B,C] y)"
         " { y = ScatterElements<axis=-1>(x, i, u) }",
         [X, torch.tensor([[[-1, 0]]]), torch.randn(1, 1, 2)]),
        ("(float[A,B,C] x, int64[N,1] i, float[N,B,C] u) => (float[A,B,C] y) { y = ScatterND(x, i, u) }",
         [X, torch.tensor([[-1]]), torch.randn(1, 3, 4)]),
        ("(float[A,B,C] x, int64[N,2] i, float[N,C] u) => (float[A,B,C] y) { y = ScatterND(x, i, u) }",
         [X, torch.tensor([[-1, 2], [0, -3]]), torch.randn(2, 4)]),
        ("(float[A,B,C] x, int64[N,M,3] i, float[N,M] u) => (float[A,B,C] y) { y = ScatterND(x, i, u) }",
         [X, torch.tensor([[[-1, 2, 0], [0, -3, 1]]]), torch.randn(1, 2)]),
        ("(int64[N] i) => (float[N,4] y) <int64 d = {4}, float[2] v = {0.0,1.0}> { y = OneHot(i, d, v) }",
         [torch.tensor([0, -1, 3])]),
        ("(int64 n) => (int64[N] y) <int64 s = {0}, int64 d = {1}> { y = Range(s, n, d) }", [torch.tensor(5)]),
        ("(int64 n) => (int64[N] y) <int64 s = {0}, int64 d = {1}> { y = Range(s, n, d) }", [torch.tensor(-5)]),
        ("(int64 n, int64 s, int64 d) => (int64[N] y) { y = Range(s, n, d) }",
         [torch.tensor(-6), torch.tensor(5), torch.tensor(-3)]),
        ("(float n, float s, float d) => (float[N] y) { y = Range(s, n, d) }",
         [torch.tensor(2.1), torch.tensor(0.5), torch.tensor(0.25)]),
        ("(float[N] x) => (float[N] y) { y = Round(x) }", [FLOATS]),
        ("(float[N] x, float[N] z) => (bool[N] y) { y = Equal(x, z) }", [FLOATS, FLOATS]),
        ("(float[N] x, float[N] z) => (bool[N] y) { y = Equal(x, z) }", [FLOATS, FLOATS.flip(0)]),
        ("(float[N] x) => (float[N] y) <float l = {-1.0}, float h = {1.0}> { y = Clip(x, l, h) }", [FLOATS[:8]]),
        ("(float[N] x, float h) => (float[N] y) { y = Clip(x, , h) }", [FLOATS[:8], torch.tensor(0.7)]),
        ("(float[A,B,C] x, int64 k) => (float[A,B,D] y, int64[A,B,D] i)"
         " { kk = Unsqueeze<axes=[0]>(k)\n y, i = TopK<largest=0>(x, kk) }", [X, torch.tensor(3)]),
        ("(int64[N] x) => (int64[M] y, int64[M] i) <int64[1] k = {7}> { y, i = TopK(x, k) }", [INTEGERS]),
        ("(int64[N] x) => (int64[M] y, int64[M] i) <int64[1] k = {9}> { y, i = TopK<largest=0>(x, k) }", [INTEGERS]),
        ("(int64[A,B,C] x) => (int64[A,2,C] y, int64[A,2,C] i) <int64[1] k = {2}> "
         " { y, i = TopK<axis=1, largest=0>(x, k) }",
         [torch.randint(-9, 9, (2, 4, 3))]),
        *[(f"(float[A,B,C] x) => (float[A,B,C] y) <int64 a = {{-2}}> {{ y = CumSum<{options}>(x, a) }}", [X])
          for options in ("reverse=0", "reverse=1", "exclusive=1", "exclusive=1, reverse=1")],
        ("(int64[N] x) => (int64[N] y) <int64 a = {0}> { y = CumSum(x, a) }", [INTEGERS]),
        ("(float[A,8,C,D] x) => (float[A,2,E,F] y) { y = DepthToSpace<blocksize=2, mode=\"CRD\">(x) }",
         [torch.randn(2, 8, 3, 5)]),
        ("(float[A,8,C,D] x) => (float[A,2,E,F] y) { y = DepthToSpace<blocksize=2>(x) }", [torch.randn(2, 8, 3, 5)]),
        ("(float[A,B] x, float[B,C] z) => (float[A,C] y) { y = Gemm<alpha=0.5>(x, z) }",
         [torch.randn(2, 3), torch.randn(3, 4)]),
        ("(float[A,B,C] x) => (float[D,E,F] y) <int64[6] p = {0,1,2,0,0,-1}, float v = {2.5}> { y = Pad(x, p, v) }",
         [X]),
        ("(float[A,B,C] x) => (float[D,E,F] y) <int64[6] p = {0,1,2,0,0,1}> { y = Pad<mode=\"reflect\">(x, p) }", [X]),
        ("(int64[A,B] x) => (int64[D,E] y) <int64[4] p = {1,-1,2,1}, int64 v = {7}> { y = Pad(x, p, v) }",
         [torch.randint(9, (2, 3))]),
        ("(float[A,B] x, float v) => (float[D,E] y) <int64[4] p = {1,1,0,0}> { y = Pad(x, p, v) }",
         [X[0], torch.tensor(3.0)]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor]) -> None:
    check_equal(model(f"g {text}", opset=11), OpsetStep(10), inputs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('(float[A,B] x, int64[4] p) => (float[C,D] y) { y = Pad<mode="edge">(x, p) }', "its pads are computed at run"),
        ("(float[A] x) => (float[B] y) { y = Unique(x) }", "that opset has no such operator"),
        ("(int64[A] x, int64 a) => (int64[A] y) { y = CumSum(x, a) }", "its axis is computed at run time"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=f"{message}.*opset_version=11 or above"):
        OpsetStep(10)(model(f"g {text}", opset=11))
