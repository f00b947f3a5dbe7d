"""tract, a runtime in Rust."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.legalization.dynamic_quantization import legalize_dynamic_quantization
from fx_onnx.passes.legalization.indices import legalize_range_indices, legalize_ranges, legalize_slices_from_the_end
from fx_onnx.passes.legalization.integers import legalize_boolean_counts
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.legalization.network_layers import LegalizeInitialStates
from fx_onnx.passes.legalization.products import legalize_gemm_bias, legalize_repeated_constants
from fx_onnx.passes.legalization.resizing import legalize_computed_resizes
from fx_onnx.passes.matchers import initializer_tensor
from fx_onnx.targets.target import Lack, Target

__all__ = ["TARGET"]


_CONSTANTS = {
    "Split": {1: "the sizes of the parts are"},
    "Resize": {2: "the scales are", 3: "the sizes are"},
    "Range": {2: "the step is"},
}
"""The inputs that tract 0.23.9 needs as constants."""


def _dynamic(node: ir.Node) -> str:
    """Returns what tract 0.23.9 refuses in a node because the model computes it; empty if nothing."""
    return next(
        (
            f"{what} computed, and tract needs constants"
            for place, what in _CONSTANTS.get(node.op_type, {}).items()
            if place < len(node.inputs) and (value := node.inputs[place]) and initializer_tensor(value) is None
        ),
        "",
    )


TARGET = Target(
    name="tract",
    versions="tract 0.23",
    opset=18,
    executed=True,
    lacks=(Lack("Unique", reason="tract does not implement it"),),
    constraint=_dynamic,
    refuses=True,
    legalizations=(
        legalize_computed_resizes,
        legalize_repeated_constants,
        legalize_boolean_counts,
        legalize_ranges,
        LegalizeInitialStates(),
        legalize_dynamic_quantization,
        legalize_gemm_bias,
        legalize_slices_from_the_end,
        *(each for each in LEGALIZATIONS if each is not legalize_range_indices),
    ),
)
