"""The target openvino."""

import pytest
import torch

import fx_onnx
from tests.exporting import exported


def test_an_operator_without_a_conversion_rule_is_refused() -> None:
    """CumProd is new in opset 26; before, a Scan computes it."""
    x = torch.ones(2, 3)
    match = r"The target openvino cannot run the model: CumProd \(.*exporting\.py:\d+\): no kernel\. "
    with pytest.raises(fx_onnx.UnsupportedOperatorError, match=match):
        exported(lambda x: x.cumprod(1), x, target="openvino", opset_version=26)
    assert exported(lambda x: x.cumprod(1), x, target="openvino").supports("openvino")
