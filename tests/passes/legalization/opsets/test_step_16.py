"""Opset 17 → 16: each rewrite gives the operators and the numbers that it should."""

import pytest
import torch

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.passes.legalization.opsets.step_16 import STEP_16
from tests.passes.checking import check, check_equal, model, run

NORM = ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]
X, WEIGHT, BIAS = torch.randn(2, 5, 4) * 3 + 100, torch.randn(5, 4), torch.randn(5, 4)


@pytest.mark.parametrize("axis", [1, -2])
def test_layer_normalization(axis: int) -> None:
    text = f"(float[N,5,4] x, float[5,4] w, float[5,4] b) => (float[N,5,4] y) {{ y = LayerNormalization<axis={axis}>"
    check(model(f"g {text}(x, w, b) }}", opset=17), STEP_16, [X, WEIGHT, BIAS], NORM)


def test_layer_normalization_returns_its_statistics() -> None:
    text = """g (float[N,5,4] x, float[4] w) => (float[A,B,C] y, float[D,E,F] mean, float[G,H,I] inverse)
    { y, mean, inverse = LayerNormalization<epsilon=0.5>(x, w) }"""
    check(model(text, opset=17), STEP_16, [X, WEIGHT[0]], [*NORM[:-1], "Reciprocal"])


def test_layer_normalization_of_float16_is_computed_in_float32() -> None:
    """The squares of 300 exceed the range of float16."""
    text = "(float16[N,4] x, float16[4] w, float16[4] b) => (float16[N,4] y) { y = LayerNormalization(x, w, b) }"
    program = model(f"g {text}", opset=17)
    x, w, b = (torch.tensor([[-300.0, 300.0, 200.0, 0.0]]).half(), torch.randn(4).half(), torch.randn(4).half())
    STEP_16(program)
    assert [node.op_type for node in program.graph].count("Cast") == 2
    want = torch.nn.functional.layer_norm(x.float(), (4,), w.float(), b.float())
    (got,) = run(program, [x, w, b])
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.float(), want, atol=4e-3, rtol=0)


@pytest.mark.parametrize("flags", ["axis=1", "axis=1, onesided=1", "axis=1, inverse=1", "axis=2"])
@pytest.mark.parametrize("parts", [1, 2])
def test_dft(flags: str, parts: int) -> None:
    if "onesided" in flags and parts == 2:
        pytest.skip("only a transform of real numbers is one-sided")
    text = f"(float[N,8,4,{parts}] x) => (float[A,B,C,D] y) {{ y = DFT<{flags}>(x) }}"
    operators = ["Transpose", "Reshape", "MatMul", "Reshape", "Transpose"]
    check(model(f"g {text}", opset=17), STEP_16, [torch.randn(3, 8, 4, parts)], operators)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("flags", ["inverse=0", "inverse=1", "onesided=1"])
def test_a_transform_of_a_length_of_the_run(flags: str, parts: int) -> None:
    if "onesided" in flags and parts == 2:
        pytest.skip("only a transform of real numbers is one-sided")
    for length in (1, 8, 9):
        text = f"(float[N,M,4,{parts}] x) => (float[A,B,C,D] y) {{ y = DFT<{flags}>(x) }}"
        check_equal(model(f"g {text}", opset=17), STEP_16, [torch.randn(3, length, 4, parts)])


@pytest.mark.parametrize("op_type", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(op_type: str, periodic: int) -> None:
    program = model(f"g (int64 n) => (float[N] y) {{ y = {op_type}<periodic={periodic}>(n) }}", opset=17)
    STEP_16(program)
    function = {"HannWindow": torch.hann_window, "BlackmanWindow": torch.blackman_window}.get(op_type)
    got = run(program, [torch.tensor(9)])[0]
    if function is not None:
        torch.testing.assert_close(got, function(9, periodic=bool(periodic)), atol=1e-6, rtol=0)
    else:
        want = torch.hamming_window(9, periodic=bool(periodic), alpha=25 / 46, beta=21 / 46)
        torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[1,N,1] x, int64 n) => (float[A,B,C] y) { y = DFT(x, n) }", "its length is an input"),
        ("(float[1,5000,1] x) => (float[A,B,C] y) { y = DFT(x) }", "the length of the transform is not at most 4096"),
        ("(float[A,16] x, int64 s) => (float[B,C,D,E] y) { y = STFT(x, s) }", "because"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=f"opset 16 cannot express .*{message}.*opset_version=17 or above"):
        STEP_16(model(f"g {text}", opset=17))
