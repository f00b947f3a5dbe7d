"""The legalization stage: rewrites what the target's runtime cannot run, by default ONNX Runtime's CPU provider."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fx_onnx.passes.legalization.cast_insertion import InsertCasts
from fx_onnx.passes.legalization.elementwise import (
    legalize_half_softplus,
    legalize_swish,
    legalize_tanh_gelu,
)
from fx_onnx.passes.legalization.indices import legalize_range_indices
from fx_onnx.passes.legalization.integers import legalize_integer_extrema
from fx_onnx.passes.legalization.lowest_masks import LegalizeLowestMasks
from fx_onnx.passes.legalization.network_layers import legalize_pads
from fx_onnx.passes.legalization.operators_64_bit import Legalize64Bit
from fx_onnx.passes.legalization.products import legalize_matrix_times_vector
from fx_onnx.passes.legalization.random_draws import LegalizeRandomDraws
from fx_onnx.passes.legalization.reductions import legalize_log_sum_exp, legalize_squares
from fx_onnx.passes.rewriter import NodeChange, Pass, apply
from fx_onnx.passes.traversal import all_graphs

__all__ = ["LEGALIZATIONS", "legalize"]

LEGALIZATIONS: tuple[Pass, ...] = (
    Legalize64Bit(),
    LegalizeRandomDraws(),
    legalize_pads,
    legalize_range_indices,
    legalize_matrix_times_vector,
    legalize_integer_extrema,
    legalize_half_softplus,
    legalize_swish,
    legalize_tanh_gelu,
    LegalizeLowestMasks(),
    InsertCasts(),
    legalize_log_sum_exp,
    legalize_squares,
)
"""All legalization passes in order.

InsertCasts follows those that emit nodes that may need casts. legalize_log_sum_exp and legalize_squares need the dtypes
with the casts.
"""


def legalize(
    model: ir.Model, passes: Sequence[Pass] = LEGALIZATIONS, changes: dict[str, NodeChange] | None = None
) -> ir.Model:
    """Returns the model in operators and dtypes for which a runtime has kernels.

    The model is changed in place. It need not be optimized.

    Args:
        model: the model.
        passes: the legalizations of the target, in order; those for ONNX Runtime's CPU provider by default.
        changes: receives what each pass changed, by the name of the pass.
    """
    read = [
        (graph, value) for graph in all_graphs(model.graph) for value in graph.initializers.values() if value.uses()
    ]
    model = apply(model, passes, changes)
    for graph, value in read:
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del graph.initializers[str(value.name)]  # a constant whose wider copy the nodes read now
    return model
