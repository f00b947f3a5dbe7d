"""Round as an addition, for a runtime that rounds halves away from zero.

MNN (measured with 3.6.1, on a CPU) rounds 0.5 and 2.5 to 1 and 3. ONNX and torch round halves to the even number.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeRound"]

_NO_FRACTION = 2.0**23
"""From here on, float32 has no fractions."""


class LegalizeRound(Rewrite):
    """Round(x) → Where(2^23 > |x|, ((|x| + 2^23) - 2^23) · Sign(x), x), for float32.

    Legal because the sum has no fraction bits, and an addition rounds halves to the even number. The pass belongs to
    the target mnn.
    """

    name = "legalize_round"
    op_types = ("Round",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Round."""
        x = node.inputs[0]
        if x is None or x.dtype != DataType.FLOAT:
            return self.declines(node, "the dtype is not float32")
        f, sizes = NodeBuilder(node, editor, DataType.FLOAT), dims(x)
        size = f.Abs(x, sizes=sizes)
        rounded = f.Sub(f.Add(size, _NO_FRACTION, sizes=sizes), _NO_FRACTION, sizes=sizes)
        signed = f.Mul(rounded, f.Sign(x, sizes=sizes), sizes=sizes)
        editor.replace(node, "Where", [f.Greater(f.constant(_NO_FRACTION), size, sizes=sizes), signed, x], {})
        return True
