"""ConstantOfShape of a narrow dtype as a Cast of one of float32, for a runtime that fills float32 only.

MNN (measured with 3.6.1, on a CPU) returns memory that was not written for int8 and uint8, and crashes at float16.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeNarrowFills"]


class LegalizeNarrowFills(Rewrite):
    """ConstantOfShape(s) of int8, uint8 or float16 → Cast(ConstantOfShape(s)) from float32.

    Legal because float32 has all numbers of these dtypes. The pass belongs to the target mnn.
    """

    name = "legalize_narrow_fills"
    op_types = ("ConstantOfShape",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one ConstantOfShape."""
        result = node.outputs[0]
        if result.dtype not in (DataType.INT8, DataType.UINT8, DataType.FLOAT16):
            return False
        f, number = NodeBuilder(node, editor, DataType.FLOAT), attribute(node, "value").numpy()
        filled = f.ConstantOfShape(
            node.inputs[0], value=ir.tensor(np.array(number, dtype=np.float32)), sizes=dims(result)
        )
        editor.replace(node, "Cast", [filled], {"to": result.dtype})
        return True
