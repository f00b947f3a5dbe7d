"""tract, a runtime in Rust."""

from fx_onnx.passes.legalization.cumulative_ranges import LegalizeRanges
from fx_onnx.passes.legalization.dynamic_quantization import LegalizeDynamicQuantization
from fx_onnx.passes.legalization.initial_states import LegalizeInitialStates
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.legalization.range_indices import LegalizeRangeIndices
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="tract",
    versions="tract 0.23",
    opset=18,
    executed=True,
    legalizations=(
        LegalizeRanges(),
        LegalizeInitialStates(),
        LegalizeDynamicQuantization(),
        *(each for each in LEGALIZATIONS if not isinstance(each, LegalizeRangeIndices)),
    ),
)
