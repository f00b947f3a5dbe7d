"""tract, a runtime in Rust."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.legalization.cumulative_ranges import LegalizeRanges
from fx_onnx.passes.legalization.dynamic_quantization import LegalizeDynamicQuantization
from fx_onnx.passes.legalization.gemm_bias import LegalizeGemmBias
from fx_onnx.passes.legalization.initial_states import LegalizeInitialStates
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.legalization.range_indices import LegalizeRangeIndices
from fx_onnx.passes.matchers import initializer_tensor
from fx_onnx.targets.target import Lack, Target

__all__ = ["TARGET"]


def _dynamic(node: ir.Node) -> str:
    """Returns what tract 0.23.9 refuses in a node because the model computes it; empty if nothing."""
    sizes = node.inputs[1] if node.op_type == "Split" and len(node.inputs) > 1 else None
    if sizes is not None and initializer_tensor(sizes) is None:
        return "the sizes of the parts are computed, and tract needs constants"
    return ""


TARGET = Target(
    name="tract",
    versions="tract 0.23",
    opset=18,
    executed=True,
    lacks=(Lack("Unique", reason="tract does not implement it"),),
    constraint=_dynamic,
    refuses=True,
    legalizations=(
        LegalizeRanges(),
        LegalizeInitialStates(),
        LegalizeDynamicQuantization(),
        LegalizeGemmBias(),
        *(each for each in LEGALIZATIONS if not isinstance(each, LegalizeRangeIndices)),
    ),
)
