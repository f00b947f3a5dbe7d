"""Operators that move elements."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.axes_and_shapes import legalize_identity_matrices
from tests.passes.checking import check, check_equal, model, run


def test_a_size_that_is_zero_at_run_time_does_not_copy_a_dim() -> None:
    """Sizes (a, b) become (b, a): without allowzero, the 0 would copy another size."""
    text = "g (float[A,B] x, int64[2] s) => (float[C,D] y) { y = Reshape<allowzero=1>(x, s) }"
    operators = ["ReduceMin", "Equal", "If", "Expand", "Reshape"]
    for sizes in ((2, 3), (2, 0), (0, 3)):
        program = model(text, opset=14)
        check(program, OpsetStep(13), [torch.randn(sizes), torch.tensor(sizes[::-1])], operators)
        (got,) = run(program, [torch.randn(sizes), torch.tensor(sizes[::-1])])
        assert tuple(got.shape) == sizes[::-1]


@pytest.mark.parametrize(
    ("flags", "operators"),
    [
        ("", ["Shape"]),
        ("<start=1>", ["Shape", "Slice"]),
        ("<end=-1>", ["Shape", "Slice"]),
        ("<start=-2, end=9>", ["Shape", "Slice"]),
        ("<start=2, end=1>", ["Shape", "Slice"]),
    ],
)
def test_shape(flags: str, operators: list[str]) -> None:
    text = f"g (float[A,B,C] x) => (int64[N] y) {{ y = Shape{flags}(x) }}"
    check(model(text, opset=15), OpsetStep(14), [torch.randn(2, 3, 5)], operators)


X = torch.tensor([[1.0, float("nan"), -float("inf")], [-4.0, 0.0, 2.0]])


def test_the_one_operand_of_unknown_size_has_the_size_of_the_result() -> None:
    program = model("g (float[A] x) => (float[A] y) <float z = {0.5}> { y = Max(x, z) }", opset=8)
    program.graph.inputs[0].shape = program.graph.outputs[0].shape = ir.Shape([None])
    check_equal(program, OpsetStep(7), [X[1]])


@pytest.mark.parametrize("k", [0, 1, -2])
def test_a_dynamic_identity_matrix_for_tensorrt(k: int) -> None:
    text = f"g (int64[M,N] x) => (float[M,N] y) {{ y = EyeLike<dtype=1, k={k}>(x) }}"
    program = model(text)
    check_equal(program, legalize_identity_matrices, [torch.zeros(3, 4, dtype=torch.int64)])
    assert "EyeLike" not in [node.op_type for node in program.graph]
