"""Replacement of float64 and int64 operators that have no kernel in ONNX Runtime, by default in its CPU provider.

Casts (``insert_casts``) cannot help here: no dtype is wider than 64 bits, and 32 bits would change the numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization._kernel_pass import KernelPass
from fx_onnx.passes.legalization.rows import ROWS
from fx_onnx.passes.legalization.table import Legalization
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["Legalize64Bit"]


class Legalize64Bit(KernelPass, Rewrite):
    """Elu, Erf, Conv, Resize and others of float64 → operators with float64 kernels; Relu of int64 → Max.

    Legal because the results are accurate to a few units in the last place of float64. They need more nodes. Operators
    of float32 have kernels and stay.
    """

    name = "legalize_64_bit"

    def roots(self) -> Collection[tuple[str, str]]:
        """Returns the operators that some row replaces."""
        return _rows().keys()

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces one node by the operators of its row."""
        x = node.inputs[0]
        dtype = None if x is None else x.dtype
        rows = [row for row in _rows()[node.domain, node.op_type] if dtype in row.lacks]
        if not rows or any(dtype in next(iter(each.admitted.values())) for each in self.kernels(node, editor.opset)):
            return False
        return any(row.rewrite(node, editor) for row in rows)


@functools.cache
def _rows() -> Mapping[tuple[str, str], Sequence[Legalization]]:
    """Returns the rows of the table that replace operators without a kernel, by operator."""
    found: dict[tuple[str, str], list[Legalization]] = {}
    for row in ROWS:
        for root in row.roots() if row.lacks else ():
            found.setdefault(root, []).append(row)
    return found
