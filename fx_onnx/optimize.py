"""onnx_ir.Model → onnx_ir.Model: one ordered tuple of passes."""

import onnx_ir as ir
from onnx_ir.passes import common

PASSES: tuple[ir.passes.InPlacePass, ...] = (
    common.IdentityEliminationPass(),
    common.CommonSubexpressionEliminationPass(),
    common.RemoveUnusedNodesPass(),
)


def optimize(model: ir.Model) -> ir.Model:
    """The model after all passes, changed in place."""
    for each in PASSES:
        model = each(model).model
    return model
