"""Opset 15 → 14: parts of a shape, and BatchNormalization of mixed types."""

import pytest

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import model


def test_refused() -> None:
    text = "g (float[N] x) => (float[N] y) { y = Bernoulli(x) }"
    with pytest.raises(OnnxExporterError, match=r"opset 14 cannot express Bernoulli.*opset_version=15"):
        OpsetStep(14)(model(text, opset=15))
