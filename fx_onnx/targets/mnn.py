"""MNN, a runtime for phones. Its converter reads the ONNX model."""

from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.legalization.less_as_greater import LegalizeLess
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="mnn",
    versions="MNN 3.6",
    opset=18,
    executed=True,
    legalizations=(LegalizeLess(), *LEGALIZATIONS),
)
