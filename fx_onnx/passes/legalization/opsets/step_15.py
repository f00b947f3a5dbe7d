"""Opset 16 → 15."""

from __future__ import annotations

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.grid_sample import grid_sample
from fx_onnx.passes.legalization.opsets.scatter_reduction import expand_reduction
from fx_onnx.passes.legalization.opsets.step import DTYPES_ONLY, OpsetStep, UnsupportedNodeError

__all__ = ["STEP_15"]


def roi_align(f: NodeBuilder) -> None:
    """RoiAlign<coordinate_transformation_mode=output_half_pixel> → RoiAlign.

    Legal because opset 15 has this mode only. The mode half_pixel is refused, because it does not widen small regions.
    """
    if f.attribute("coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        raise UnsupportedNodeError("its regions are aligned to the centers of pixels")
    kept = {name: a for name, a in f.node.attributes.items() if name != "coordinate_transformation_mode"}
    f.editor.replace(f.node, "RoiAlign", list(f.node.inputs), kept)


STEP_15 = OpsetStep(
    15,
    rewrites={
        "GridSample": grid_sample,
        "RoiAlign": roi_align,
        "ScatterElements": expand_reduction,
        "ScatterND": expand_reduction,
    },
    unchanged=dict.fromkeys(
        (
            "GreaterOrEqual", "Identity", "If", "LeakyRelu", "LessOrEqual", "Loop", "PRelu", "Scan", "Where",
        ),
        DTYPES_ONLY,
    ),
)  # fmt: skip
