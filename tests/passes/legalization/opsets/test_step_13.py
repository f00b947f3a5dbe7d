"""Opset 14 → 13: each rewrite gives the operators and the numbers that it should."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.passes.legalization.opsets.step_13 import STEP_13
from tests.passes.checking import check, check_equal, model, run

TRIANGLE = ["Shape", "Slice", "Squeeze", "Slice", "Squeeze", "Range", "Unsqueeze", "Range", "Sub"]


@pytest.mark.parametrize(
    ("text", "inputs", "operators"),
    [
        ("(float[N] x) => (float[N] y) { y = HardSwish(x) }", [torch.linspace(-5, 5, 9)], ["HardSigmoid", "Mul"]),
        ("(int32[N] x) => (int32[N] y) { y = Relu(x) }", [torch.arange(-3, 3, dtype=torch.int32)], ["Max"]),
        ("(float[N] x) => (float[N] y) { y = Relu(x) }", [torch.randn(4)], ["Relu"]),
        ("(float[N,4,4] x) => (float[N,4,4] y) { y = Trilu(x) }", [torch.randn(2, 4, 4)],
         [*TRIANGLE, "GreaterOrEqual", "Where"]),
        ("(int64[A,B] x, int64 k) => (int64[A,B] y) { y = Trilu<upper=0>(x, k) }",
         [torch.arange(1, 16).reshape(3, 5), torch.tensor(-1)], [*TRIANGLE, "LessOrEqual", "Where"]),
        ("(float[A,B] x) => (float[2,6] y) <int64[2] s = {2,6}> { y = Reshape<allowzero=1>(x, s) }",
         [torch.randn(3, 4)], ["Reshape"]),
        ("(float[A,0] x) => (float[0,6] y) <int64[2] s = {0,6}> { y = Reshape<allowzero=1>(x, s) }",
         [torch.randn(3, 0)], ["Expand"]),
        ("(float[A,6] x, int64[3] s) => (float[A,2,3] y) { y = Reshape<allowzero=1>(x, s) }",
         [torch.randn(0, 6), torch.tensor([0, 2, 3])], ["Reshape"]),
        ("(int8[N] x) => (int8[N] y) { y = Add(x, x) }", [torch.tensor([-128, 127, 1], dtype=torch.int8)],
         ["Cast", "Add", "Cast"]),
        ("(float16[N] x) => (float16[N] y) <int64 a = {0}> { y = CumSum(x, a) }", [torch.ones(5).half()],
         ["Cast", "CumSum", "Cast"]),
        ("(float[N,3] x, float[3] w) => (float[N,3] y) { y = BatchNormalization(x, w, w, w, w) }",
         [torch.randn(2, 3), torch.rand(3) + 0.5], ["BatchNormalization"]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor], operators: Sequence[str]) -> None:
    check(model(f"g {text}", opset=14), STEP_13, inputs, operators)


def test_a_size_that_is_zero_at_run_time_does_not_copy_a_dim() -> None:
    """Sizes (a, b) become (b, a): without allowzero, the 0 would copy another size."""
    text = "g (float[A,B] x, int64[2] s) => (float[C,D] y) { y = Reshape<allowzero=1>(x, s) }"
    operators = ["ReduceMin", "Equal", "If", "Expand", "Reshape"]
    for sizes in ((2, 3), (2, 0), (0, 3)):
        program = model(text, opset=14)
        check(program, STEP_13, [torch.randn(sizes), torch.tensor(sizes[::-1])], operators)
        (got,) = run(program, [torch.randn(sizes), torch.tensor(sizes[::-1])])
        assert tuple(got.shape) == sizes[::-1]


@pytest.mark.parametrize("read", ["", ", float[3] m, float[3] v"])
@pytest.mark.parametrize("shape", [(8, 3), (2, 3, 4, 5)])
def test_batch_normalization_in_training(shape: tuple[int, ...], read: str) -> None:
    """The result and the new statistics, of which a caller may read none."""
    sizes = ",".join("ABCD"[: len(shape)])
    text = f"""(float[{sizes}] x, float[3] s, float[3] b, float[3] m0, float[3] v0) => (float[{sizes}] y{read})
    {{ y, m, v = BatchNormalization<training_mode=1, momentum=0.8>(x, s, b, m0, v0) }}"""
    check_equal(model(f"g {text}", opset=14), STEP_13, [torch.randn(shape), *torch.rand(4, 3)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(seq(float[N]) x) => (seq(float[N]) y) { y = Identity(x) }", "it admits tensors only"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=f"{message}.*opset_version=14 or above"):
        STEP_13(model(f"g {text}", opset=14))
