"""The legalization stage: rewrites what the target's runtime cannot run, by default ONNX Runtime's CPU provider."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from fx_onnx.passes.legalization.cast_insertion import InsertCasts
from fx_onnx.passes.legalization.lowest_masks import LegalizeLowestMasks
from fx_onnx.passes.legalization.operators_64_bit import Legalize64Bit
from fx_onnx.passes.legalization.random_draws import LegalizeRandomDraws
from fx_onnx.passes.legalization.rows import ROWS
from fx_onnx.passes.legalization.table import DEFAULT
from fx_onnx.passes.rewriter import NodeChange, Pass, apply
from fx_onnx.passes.traversal import all_graphs

__all__ = ["LEGALIZATIONS", "legalizations", "legalize"]

_OF_CASTS = ("legalize_log_sum_exp", "legalize_squares")
"""The rows that need the dtypes with the casts."""


def legalizations(target: str, *tables: str, without: Collection[str] = ()) -> tuple[Pass, ...]:
    """Returns all passes that replace what a target cannot run, in order: its own, then those of every target.

    InsertCasts follows the passes that emit nodes that may need casts.

    Args:
        target: the name of the target; one without rows gets those of every target.
        tables: the tables of kernels of the runtime's providers, by default that of ONNX Runtime's CPU provider.
        without: the names of passes that the target does not need.
    """
    own = [row for row in ROWS if target in row.targets and target != DEFAULT]
    default = [row for row in ROWS if DEFAULT in row.targets]
    passes = (
        *own,
        Legalize64Bit(*tables),
        LegalizeRandomDraws(*tables),
        *(row for row in default if row.name not in _OF_CASTS),
        LegalizeLowestMasks(),
        InsertCasts(*tables),
        *(row for row in default if row.name in _OF_CASTS),
    )
    return tuple(each for each in passes if each.name not in without)


LEGALIZATIONS = legalizations(DEFAULT)
"""The passes that every target needs unless its record says otherwise."""


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
