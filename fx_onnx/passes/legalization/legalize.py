"""The legalization stage: rewrites what ONNX Runtime's CPU provider cannot run."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.legalization.cast_insertion import InsertCasts
from fx_onnx.passes.legalization.operators_64_bit import Legalize64Bit
from fx_onnx.passes.legalization.pads_before_pooling import LegalizePads
from fx_onnx.passes.legalization.random_draws import LegalizeRandomDraws
from fx_onnx.passes.legalization.range_indices import LegalizeRangeIndices
from fx_onnx.passes.legalization.swish import LegalizeSwish
from fx_onnx.passes.rewriter import Pass, apply

__all__ = ["LEGALIZATIONS", "legalize"]

LEGALIZATIONS: tuple[Pass, ...] = (
    Legalize64Bit(),
    LegalizeRandomDraws(),
    LegalizePads(),
    LegalizeRangeIndices(),
    LegalizeSwish(),
    InsertCasts(),
)
"""All legalization passes in order. InsertCasts is last because the others emit nodes that may need casts."""


def legalize(model: ir.Model) -> ir.Model:
    """Returns the model in operators and dtypes for which ONNX Runtime's CPU provider has kernels.

    The model is changed in place. It need not be optimized.
    """
    read = [(graph, value) for graph in model.graphs() for value in graph.initializers.values() if value.uses()]
    model = apply(model, LEGALIZATIONS)
    for graph, value in read:
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del graph.initializers[str(value.name)]  # a constant whose wider copy the nodes read now
    return model
