"""tract, a runtime in Rust."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.backends.legalization.rows import legalizations
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
            for index, what in _CONSTANTS.get(node.op_type, {}).items()
            if index < len(node.inputs) and (value := node.inputs[index]) and initializer_tensor(value) is None
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
    legalizations=legalizations("tract", without=["legalize_range_indices"]),
)
