"""Expansion of the tanh approximation of Gelu where ONNX Runtime's optimizer of transformers would drop the tanh.

onnxruntime.transformers.optimizer (measured with ONNX Runtime 1.31.1) fuses a bias and a Gelu into BiasGelu, which
computes the exact Gelu, also if the Gelu has approximate="tanh". It fuses the elementary operators into FastGelu.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeTanhGelu"]


class LegalizeTanhGelu(Rewrite):
    """Gelu(y, tanh) → 0.5 * y * (1 + Tanh(√(2/π) * (y + 0.044715 * y³))), where y = MatMul(x, w) + bias.

    Legal because this is the definition of the approximation.
    """

    name = "legalize_tanh_gelu"
    op_types = ("Gelu",)
    since = 20

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Gelu."""
        y = node.inputs[0]
        plus = producer_of(y, "Add")
        if attribute(node, "approximate", "none") != "tanh" or plus is None or y is None:
            return False
        biases = [value for value in plus.inputs if value is not None and value.is_initializer()]
        if producer_of(plus.inputs[0], "MatMul") is None and producer_of(plus.inputs[1], "MatMul") is None:
            return False
        if not any(len(dims(bias) or ()) == 1 for bias in biases):
            return False
        f, sizes = NodeBuilder(node, editor, node.outputs[0].dtype), dims(y)
        cubic = f.Mul(f.Pow(y, 3.0, sizes=sizes), 0.044715, sizes=sizes)
        inner = f.Mul(f.Add(y, cubic, sizes=sizes), math.sqrt(2 / math.pi), sizes=sizes)
        factor = f.Add(f.Tanh(inner, sizes=sizes), 1.0, sizes=sizes)
        editor.replace(node, "Mul", [f.Mul(y, 0.5, sizes=sizes), factor], {})
        return True
