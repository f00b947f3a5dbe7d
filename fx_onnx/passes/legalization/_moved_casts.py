"""Finds the Concats and Splits that compute in a wider dtype too, so that one Cast replaces one Cast for each part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import onnx_ir as ir
from onnx_ir import DataType

__all__ = ["Plan", "Types", "joins_of_wide_results", "splits_for_wide_readers"]

Types = tuple[DataType | None, ...]
Plan = tuple[Types, Types]
"""The dtypes that the inputs and the outputs of a node need; None for those that stay."""

_Runs = Callable[[ir.Node, DataType], bool]
"""Returns whether the runtime has a kernel of the node for a dtype."""


def joins_of_wide_results(
    nodes: Iterable[ir.Node], plans: Mapping[ir.Node, Plan], runs: _Runs
) -> dict[ir.Node, DataType]:
    """Returns each Concat of at least two results that are rounded to the narrow dtype, with the wide dtype.

    Such a Concat may join the wide results, and one Cast rounds all of them. No other node may read the results. A part
    may also be a ConstantOfShape.
    """
    found = {node: _joined(node, plans) for node in nodes if node.op_type == "Concat" and node not in plans}
    return {node: wide for node, wide in found.items() if wide is not None and runs(node, wide)}


def _joined(node: ir.Node, plans: Mapping[ir.Node, Plan]) -> DataType | None:
    dtypes: list[DataType] = []
    for value in node.inputs:
        producer = None if value is None else value.producer()
        if value is None or producer is None or producer.graph is not node.graph or value.is_graph_output():
            return None
        if any(use.node is not node for use in value.uses()):
            return None
        wide = plans[producer][1][value.index() or 0] if producer in plans else None
        if wide is not None:
            dtypes.append(wide)
        elif producer.op_type != "ConstantOfShape":
            return None
    return dtypes[0] if len(dtypes) > 1 and len(set(dtypes)) == 1 else None


def splits_for_wide_readers(
    nodes: Iterable[ir.Node], plans: Mapping[ir.Node, Plan], runs: _Runs
) -> dict[ir.Node, DataType]:
    """Returns each Split whose parts are read in one wide dtype only, with this dtype.

    One Cast of the whole tensor then replaces the Casts of the parts.
    """
    found = {node: _read_as(node, plans) for node in nodes if node.op_type == "Split" and node not in plans}
    return {node: wide for node, wide in found.items() if wide is not None and runs(node, wide)}


def _read_as(node: ir.Node, plans: Mapping[ir.Node, Plan]) -> DataType | None:
    uses = [use for value in node.outputs for use in value.uses()]
    if any(value.is_graph_output() for value in node.outputs) or not all(use.node in plans for use in uses):
        return None
    dtypes = {plans[use.node][0][use.idx] for use in uses}
    return dtypes.pop() if len(dtypes) == 1 else None
