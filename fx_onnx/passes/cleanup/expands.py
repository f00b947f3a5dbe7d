"""Elimination of Expands before nodes that broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.core.size_rules import broadcast_shapes
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rules import Result, rule

__all__ = ["eliminate_expands"]


_BROADCASTS = """Add | Sub | Mul | Div | Pow | Mod | And | Or | Xor | Equal | Greater | GreaterOrEqual | Less |
    LessOrEqual | Where | MatMul | Max | Min | Sum | PRelu"""


@rule(f"({_BROADCASTS})(..., ~Expand(x, _), ...)")
def eliminate_expands(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], x: Value) -> Result:
    """f(Expand(x), y) → f(x, y), where f is elementwise with broadcasting, or MatMul.

    Legal where the operands broadcast to the same shape without the Expand. For MatMul only batch axes broadcast; for
    PRelu only the slope does.
    """
    inputs = list(node.inputs)
    shorter = [x if each is nodes[1].outputs[0] else each for each in inputs]
    if not _same_result(node, inputs, shorter):
        return "the result may have another shape without the Expand"
    return f.emit(node.op_type, shorter, node.attributes)[0]


def _same_result(node: ir.Node, inputs: list[ir.Value | None], shorter: list[ir.Value | None]) -> bool:
    skipped = 2 if node.op_type == "MatMul" else 0
    before, after = ([dims(value) for value in values] for values in (inputs, shorter))
    if any(sizes is None or len(sizes) < skipped for sizes in (*before, *after)):
        return False
    if node.op_type == "PRelu" and (after[0] != before[0]):
        return False
    cut = -skipped or None
    if skipped and [x[cut:] for x in before if x] != [x[cut:] for x in after if x]:
        return False
    old = broadcast_shapes(*(x[:cut] for x in before if x is not None))
    return old is not None and old == broadcast_shapes(*(x[:cut] for x in after if x is not None))
