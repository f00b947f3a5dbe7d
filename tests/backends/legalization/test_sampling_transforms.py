"""Fourier transforms and their windows."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.sampling import legalize_transforms
from tests.passes.checking import check, check_equal, model, run


@pytest.mark.parametrize("flags", ["axis=1", "axis=1, onesided=1", "axis=1, inverse=1", "axis=2"])
@pytest.mark.parametrize("parts", [1, 2])
def test_dft(flags: str, parts: int) -> None:
    if "onesided" in flags and parts == 2:
        pytest.skip("only a transform of real numbers is one-sided")
    text = f"(float[N,8,4,{parts}] x) => (float[A,B,C,D] y) {{ y = DFT<{flags}>(x) }}"
    operators = ["Transpose", "Reshape", "MatMul", "Reshape", "Transpose"]
    check(model(f"g {text}", opset=17), OpsetStep(16), [torch.randn(3, 8, 4, parts)], operators)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("flags", ["inverse=0", "inverse=1", "onesided=1"])
def test_a_transform_of_a_length_of_the_run(flags: str, parts: int) -> None:
    if "onesided" in flags and parts == 2:
        pytest.skip("only a transform of real numbers is one-sided")
    for length in (1, 8, 9):
        text = f"(float[N,M,4,{parts}] x) => (float[A,B,C,D] y) {{ y = DFT<{flags}>(x) }}"
        check_equal(model(f"g {text}", opset=17), OpsetStep(16), [torch.randn(3, length, 4, parts)])


@pytest.mark.parametrize("op_type", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(op_type: str, periodic: int) -> None:
    program = model(f"g (int64 n) => (float[N] y) {{ y = {op_type}<periodic={periodic}>(n) }}", opset=17)
    OpsetStep(16)(program)
    function = {"HannWindow": torch.hann_window, "BlackmanWindow": torch.blackman_window}.get(op_type)
    got = run(program, [torch.tensor(9)])[0]
    if function is not None:
        torch.testing.assert_close(got, function(9, periodic=bool(periodic)), atol=1e-6, rtol=0)
    else:
        want = torch.hamming_window(9, periodic=bool(periodic), alpha=25 / 46, beta=21 / 46)
        torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("opset", "call"),
    [(18, "DFT<axis=1>(x)"), (18, "DFT<axis=2, inverse=1>(x)"), (20, "DFT(x)"), (20, "DFT<onesided=1>(x, , a)")],
)
def test_a_static_length_for_tensorrt(opset: int, call: str) -> None:
    text = f"g (float[N,8,4,1] x) => (float[A,B,C,D] y) <int64 a = {{1}}> {{ y = {call} }}"
    operators = ["Transpose", "Reshape", "MatMul", "Reshape", "Transpose"]
    check(model(text, opset=opset), legalize_transforms, [torch.randn(3, 8, 4, 1)], operators)


@pytest.mark.parametrize("length", [1, 8, 9])
def test_a_dynamic_length_for_tensorrt(length: int) -> None:
    """The angles are computed in float32."""
    text = "g (float[N,M,4,1] x) => (float[A,B,C,D] y) { y = DFT<axis=1>(x) }"
    program = model(text, opset=18)
    check_equal(program, legalize_transforms, [torch.randn(3, length, 4, 1)])
    assert all(output.dtype != ir.DataType.DOUBLE for node in program.graph for output in node.outputs)
