"""Opset 16 → 15."""

from __future__ import annotations

from fx_onnx.passes.legalization.opsets.grid_sample import grid_sample
from fx_onnx.passes.legalization.opsets.roi_align import roi_align
from fx_onnx.passes.legalization.opsets.scatter_reduction import expand_reduction
from fx_onnx.passes.legalization.opsets.step import OpsetStep

__all__ = ["STEP_15"]


STEP_15 = OpsetStep(
    15,
    rewrites={
        "GridSample": grid_sample,
        "RoiAlign": roi_align,
        "ScatterElements": expand_reduction,
        "ScatterND": expand_reduction,
    },
)  # fmt: skip
