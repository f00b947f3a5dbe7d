"""Elimination of redundant Casts."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["MergeCasts"]

# dtype → (1 if it is signed, bits of the integers that it represents exactly, bits of its exponent).
_RANGE = {
    DataType.BOOL: (0, 1, 0),
    DataType.UINT8: (0, 8, 0),
    DataType.UINT16: (0, 16, 0),
    DataType.UINT32: (0, 32, 0),
    DataType.UINT64: (0, 64, 0),
    DataType.INT8: (1, 7, 0),
    DataType.INT16: (1, 15, 0),
    DataType.INT32: (1, 31, 0),
    DataType.INT64: (1, 63, 0),
    DataType.BFLOAT16: (1, 8, 8),
    DataType.FLOAT: (1, 24, 8),
    DataType.DOUBLE: (1, 53, 11),
    DataType.FLOAT16: (1, 11, 5),
}


class MergeCasts(Rewrite):
    """Cast(x) to the dtype of x → x; Cast(Cast(x)) → Cast(x), or x if the dtypes are equal.

    Legal where the inner Cast is lossless: every number of its source dtype exists in its target dtype.
    """

    name = "merge_casts"
    op_types = ("Cast",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Eliminates one Cast, or merges it with the Cast before it."""
        source, target = node.inputs[0], DataType(attribute(node, "to"))
        if source is None or source.dtype is None:
            return False
        if source.dtype == target:
            return editor.replace_with_value(node, source)
        before = producer_of(source, "Cast")
        origin = before.inputs[0] if before is not None else None
        if before is None or origin is None or origin.dtype is None:
            return False
        if not _is_lossless(origin.dtype, source.dtype):
            reason = "the first Cast, from %s to %s, loses information"
            return self.declines(node, reason, origin.dtype, source.dtype)
        if origin.dtype == target and editor.replace_with_value(node, origin):
            return True
        editor.replace(node, "Cast", [origin], absorbed=[before])
        return True


def _is_lossless(source: DataType, target: DataType) -> bool:
    """Returns whether ``target`` represents every number of ``source``."""
    if source not in _RANGE or target not in _RANGE:
        return False
    sign, bits, exponent = _RANGE[source]
    target_sign, target_bits, target_exponent = _RANGE[target]
    return sign <= target_sign and bits <= target_bits and exponent <= target_exponent
