"""The legalization stage: rewrites what the target's runtime cannot run, by default ONNX Runtime's CPU provider.

Besides the rows of the table it has Casts, random numbers, and two passes of this file:

- Operators of float64 and int64 without a kernel. Casts cannot help: no dtype is wider than 64 bits, and 32 bits would
  change the numbers.
- Masks of Attention with the lowest number, which ONNX Runtime's CPU provider takes for minus infinity. A mask may hide
  all keys from a query, such as one that is padding. Where it does so with the lowest finite number, the scores are
  equal, and the result is the mean of the values, in ONNX and in PyTorch. ONNX Runtime 1.31 returns zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.onnx_model import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization.cast_insertion import InsertCasts, KernelPass
from fx_onnx.passes.legalization.random_draws import LegalizeRandomDraws
from fx_onnx.passes.legalization.rows import ROWS
from fx_onnx.passes.legalization.table import DEFAULT, Legalization, by_operator
from fx_onnx.passes.matchers import constant_array, constant_number, producer_of
from fx_onnx.passes.rewriter import NodeChange, Pass, Rewrite, apply
from fx_onnx.passes.room_passes import QuantizedWeightPass
from fx_onnx.passes.traversal import without_new_unread

__all__ = ["LEGALIZATIONS", "Legalize64Bit", "LegalizeLowestMasks", "legalizations", "legalize"]

_LOWEST = np.finfo(np.float32).min
_NEXT = np.nextafter(_LOWEST, np.float32(0))
_MASKS = ("Where", "Add", "Expand", "Unsqueeze", "Reshape")


class LegalizeLowestMasks(Rewrite):
    """Attention(q, k, v, mask) → Attention(q, k, v, Where(mask = lowest, next, mask)), in float32.

    ``next`` is the number after the lowest one. In a mask Where(condition, 0, lowest), it takes the place of the
    constant. Legal because scores vanish beside both numbers: hidden keys have equal scores.
    """

    name = "legalize_lowest_masks"
    op_types = ("Attention",)
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites the mask of one Attention and of all others that read it."""
        mask = (*node.inputs, None, None, None, None)[3] if metadata.EXPLICIT not in node.meta else None
        return mask is not None and mask.dtype == DataType.FLOAT and _raise(mask, node, editor)


def _raise(mask: ir.Value, node: ir.Node, editor: Editor) -> bool:
    """Replaces the lowest number in a mask that ``node`` reads, before the nodes that only move or add masks."""
    array = constant_array(mask)
    if array is not None and (array != _LOWEST).all():
        return False
    producer = producer_of(mask, *_MASKS)
    if producer is None or not _is_only_a_mask(mask):
        return _raise_after(mask, node, editor)
    if producer.op_type == "Where":
        return _raise_constants(producer, editor)
    parts = producer.inputs if producer.op_type == "Add" else producer.inputs[:1]
    changes = [_raise(part, producer, editor) for part in parts if part is not None]
    return any(changes)


def _is_only_a_mask(value: ir.Value) -> bool:
    """Returns whether all consumers of the value are Attentions that read it as a mask, or sums of masks for these."""
    return not value.is_graph_output() and all(_reads_a_mask(use.node, use.idx) for use in value.uses())


def _reads_a_mask(node: ir.Node, index: int) -> bool:
    if node.op_type in _MASKS and not node.domain and (node.op_type != "Where" or index):
        return _is_only_a_mask(node.outputs[0])
    return (node.op_type, node.domain, index) == ("Attention", "", 3)


def _raise_constants(where: ir.Node, editor: Editor) -> bool:
    """Replaces the lowest number among the two sides of a Where, which are constants or masks themselves."""
    condition, *sides = where.inputs
    comparison = producer_of(condition, "Equal")
    if comparison is not None and constant_number(comparison.inputs[1]) == _LOWEST:
        return False  # this is the Where that _raise_after inserts
    f = NodeBuilder(where, editor, DataType.FLOAT)
    raised = [f.constant(float(_NEXT)) if constant_number(side) == _LOWEST else side for side in sides]
    changed = raised != sides
    if changed:
        editor.replace(where, "Where", [condition, *raised])
    unknown = [side for side in raised if side is not None and constant_array(side) is None]
    changes = [_raise(side, where, editor) for side in unknown]
    return changed or any(changes)


def _raise_after(mask: ir.Value, node: ir.Node, editor: Editor) -> bool:
    """Inserts the replacement after a mask, for all consumers that read it as a mask; in a function for ``node``."""
    in_function = editor.function is not None
    uses = [use for use in mask.uses() if use.node is node or not in_function]
    f = NodeBuilder(node, editor, DataType.FLOAT, after=None if in_function else mask)
    raised = f.Where(f.Equal(mask, float(_LOWEST)), float(_NEXT), mask)
    for consumer, index in uses:
        if _reads_a_mask(consumer, index):
            consumer.replace_input_with(index, raised)
    return True


class Legalize64Bit(KernelPass, Rewrite):
    """Elu, Erf, Conv, Resize and others of float64 → operators with float64 kernels; Relu of int64 → Max.

    Legal because the results are accurate to a few units in the last place of float64. They need more nodes. Operators
    of float32 have kernels and stay.
    """

    name = "legalize_64_bit"

    def roots(self) -> Collection[tuple[str, str]]:
        """Returns the operators that some row replaces."""
        return [("", op_type) for op_type in _rows()]

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces one node by the operators of its row."""
        x = node.inputs[0]
        dtype = None if x is None else x.dtype
        rows = [row for row in _rows()[node.op_type] if dtype in row.lacks]
        if not rows or any(
            dtype in next(iter(kernel.admitted.values())) for kernel in self.kernels(node, editor.opset)
        ):
            return False
        return any(row.rewrite(node, editor) for row in rows)


@functools.cache
def _rows() -> Mapping[str, Sequence[Legalization]]:
    """Returns the rows of the table that replace operators without a kernel, by operator."""
    return by_operator(row for row in ROWS if row.lacks)


_OF_CPU = (DEFAULT, "onnxruntime")
"""The targets whose runtime computes quantized products with the kernels of ONNX Runtime's CPU provider."""


def legalizations(
    target: str, *tables: str, without: Collection[str] = (), rows: Sequence[Legalization] = ROWS
) -> tuple[Pass, ...]:
    """Returns all passes that replace what a target cannot run, in order: its own, then those of every target.

    InsertCasts follows the passes that emit nodes that may need casts.

    Args:
        target: the name of the target; one without rows gets those of every target.
        tables: the tables of kernels of the runtime's providers, by default that of ONNX Runtime's CPU provider.
        without: the names of passes that the target does not need.
        rows: the rows among which those of the target are.
    """
    own = [row for row in rows if target in row.targets and target != DEFAULT]
    default = [row for row in ROWS if DEFAULT in row.targets]
    passes = (
        *(row for row in own if not row.after_casts),
        *([QuantizedWeightPass("legalize_signed_quantization")] if target in _OF_CPU else []),
        Legalize64Bit(*tables),
        LegalizeRandomDraws(*tables),
        *(row for row in default if not row.after_casts),
        LegalizeLowestMasks(),
        InsertCasts(*tables),
        *(row for row in (*own, *default) if row.after_casts),
    )
    return tuple(row for row in passes if row.name not in without)


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
    with without_new_unread(model.graph):  # such as a constant whose wider copy the nodes read now
        return apply(model, passes, changes)
