"""Pads before a pooling, in a form that ONNX Runtime does not merge into the pooling.

ONNX Runtime's graph optimizer merges a Pad of zeros into the MaxPool or AveragePool after it. For a MaxPool that is
wrong: its own padding is never the maximum, but a zero of the Pad is the maximum where all values are negative. An
AveragePool may end up with more padding than its window, and then the model does not load.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizePads"]


class LegalizePads(Rewrite):
    """Pad(x, pads, value) before a pooling → Pad(x, pads, value, axes).

    Legal because ``axes`` lists all axes, which is the default. ONNX Runtime does not merge a Pad that has ``axes``.
    """

    name = "legalize_pads"
    op_types = ("Pad",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Adds all axes to one Pad."""
        if len(node.inputs) > 3 or not any(_is_pooling(use.node) for use in node.outputs[0].uses()):
            return False
        sizes = dims(node.inputs[0])
        if sizes is None:
            return self.declines(node, "the shape of its input is unknown")
        value = node.inputs[2] if len(node.inputs) > 2 else None
        axes = editor.constant(list(range(len(sizes))), node)
        editor.replace(node, "Pad", [*node.inputs[:2], value, axes])
        return True


def _is_pooling(node: ir.Node) -> bool:
    return node.op_type in ("MaxPool", "AveragePool") and not node.domain
