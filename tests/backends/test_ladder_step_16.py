"""Opset 17 → 16: each rewrite gives the operators and the numbers that it should."""

import pytest

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import model


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
        OpsetStep(16)(model(f"g {text}", opset=17))
