"""Folding of zero padding into the convolution or pooling after it."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_array, constant_integers, dims, is_absorbable, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldPads"]


class FoldPads(Rewrite):
    """Conv(Pad(x)) → Conv(x) with larger ``pads``; AveragePool(Pad(x)) → AveragePool(x) if it counts its padding.

    Legal where the Pad adds constant zeros, at spatial axes only, and removes nothing. No other node may read it.
    """

    name = "fold_pads"
    op_types = ("Conv", "AveragePool")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Folds one Pad."""
        before = producer_of(node.inputs[0], "Pad")
        if before is None:
            return False
        if not is_absorbable(before.outputs[0]):
            return self.declines(node, "another node reads the Pad")
        counts_padding = node.op_type == "Conv" or (
            attribute(node, "count_include_pad", 0) == 1 and attribute(node, "ceil_mode", 0) == 0
        )
        if not counts_padding or attribute(node, "auto_pad", "NOTSET") != "NOTSET":
            return self.declines(node, "it does not count its padding, or chooses it by auto_pad")
        added = _zero_padding(before)
        if added is None:
            return self.declines(node, "the Pad is not of constant zeros at spatial axes only")
        pads = attribute(node, "pads", [0] * len(added))
        if node.op_type == "AveragePool" and any(pads):  # the divisor counts the two kinds of padding differently
            return self.declines(node, "the AveragePool has padding already")
        summed = [old + new for old, new in zip(pads, added, strict=True)]
        if node.op_type == "AveragePool" and not _is_smaller_than_window(node, summed):
            return self.declines(node, "the padding is as large as the window")
        inputs = [before.inputs[0], *node.inputs[1:]]
        editor.replace(node, node.op_type, inputs, {**node.attributes, "pads": summed}, absorbed=[before])
        return True


def _zero_padding(node: ir.Node) -> list[int] | None:
    """Returns how many zeros a Pad adds before and after each spatial axis.

    None if it adds anything other than zeros, pads another axis, or removes elements.
    """
    value = constant_array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
    if len(node.inputs) > 2 and node.inputs[2] is not None and (value is None or value.any()):
        return None
    pads, sizes = constant_integers(node.inputs[1]), dims(node.inputs[0])
    if attribute(node, "mode", "constant") != "constant" or pads is None or sizes is None:
        return None
    rank = len(sizes)
    axes = (
        constant_integers(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else list(range(rank))
    )
    if axes is None:
        return None
    begins, ends = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        begins[axis], ends[axis] = pads[place], pads[place + len(axes)]
    if min(begins + ends) < 0 or any(begins[:2] + ends[:2]):
        return None
    return begins[2:] + ends[2:]


def _is_smaller_than_window(node: ir.Node, pads: list[int]) -> bool:
    """Returns whether the padding is smaller than the window, as the pooling operators require."""
    window = attribute(node, "kernel_shape") * 2
    return all(pad < size for pad, size in zip(pads, window, strict=True))
