"""Padding before pooling, in a form that ONNX Runtime leaves as it is.

Its graph optimizer merges a Pad of zeros into the pooling after it. A MaxPool then gives other numbers: its own padding
never wins, zeros do where all values are negative. An AveragePool may have more padding than its window then, and
the model does not load.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizePads"]


class LegalizePads(Rewrite):
    """Pad(x, pads, value) before a pooling → Pad(x, pads, value, axes): a Pad that names its axes is not merged."""

    name = "legalize_pads"
    op_types = ("Pad",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Names the axes of one Pad, all of them."""
        sizes = dims(node.inputs[0])
        if len(node.inputs) > 3 or sizes is None or not any(_is_pooling(use.node) for use in node.outputs[0].uses()):
            return False
        value = node.inputs[2] if len(node.inputs) > 2 else None
        axes = editor.constant(list(range(len(sizes))), node)
        editor.replace(node, "Pad", [*node.inputs[:2], value, axes])
        return True


def _is_pooling(node: ir.Node) -> bool:
    return node.op_type in ("MaxPool", "AveragePool") and not node.domain
