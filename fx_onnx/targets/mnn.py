"""MNN, a runtime for phones. Its converter reads the ONNX model."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.legalization.cubic_resize import LegalizeCubicResize
from fx_onnx.passes.legalization.dynamic_quantization import LegalizeDequantization
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.legalization.less_as_greater import LegalizeLess
from fx_onnx.passes.legalization.log_softmax_axis import LegalizeLogSoftmax
from fx_onnx.passes.legalization.reductions_as_sums import LegalizeReductions
from fx_onnx.passes.legalization.scatter_reductions import LegalizeScatterReductions
from fx_onnx.passes.matchers import attribute
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]


def _wrong(node: ir.Node) -> str:
    """Returns what MNN computes wrongly in a node that no legalization replaces; empty if nothing."""
    if node.op_type in ("ScatterND", "ScatterElements") and attribute(node, "reduction", "none") != "none":
        return "MNN ignores the reduction and overwrites"
    if node.op_type == "Resize" and attribute(node, "mode", "nearest") == "cubic":
        coordinates = attribute(node, "coordinate_transformation_mode", "half_pixel")
        if coordinates not in ("asymmetric", "align_corners"):
            return f"MNN's cubic interpolation reads the wrong pixels with the coordinates {coordinates}"
    return ""


TARGET = Target(
    name="mnn",
    versions="MNN 3.6",
    opset=18,
    executed=True,
    constraint=_wrong,
    refuses=True,
    legalizations=(
        LegalizeLess(),
        LegalizeReductions(),
        LegalizeScatterReductions(),
        LegalizeLogSoftmax(),
        LegalizeCubicResize(),
        LegalizeDequantization(),
        *LEGALIZATIONS,
    ),
)
