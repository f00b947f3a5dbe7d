"""Zero padding into the convolution or average pooling after it."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_array, constant_integers, dims, single_use_producer
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldPads"]


class FoldPads(Rewrite):
    """Conv(Pad(x)) → Conv(x) with larger ``pads``; likewise for an AveragePool that counts its padding.

    Legal where the padding is of constant zeros, at spatial axes only, none of it negative, and no other node reads it.
    """

    name = "fold_pads"
    op_types = ("Conv", "AveragePool")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Folds one Pad."""
        before = single_use_producer(node.inputs[0], "Pad")
        if before is None:
            return False
        counted = node.op_type == "Conv" or (
            attribute(node, "count_include_pad", 0) == 1 and attribute(node, "ceil_mode", 0) == 0
        )
        if not counted or attribute(node, "auto_pad", "NOTSET") != "NOTSET":
            return False
        added = _zero_padding(before)
        if added is None:
            return False
        pads = attribute(node, "pads", [0] * len(added))
        if node.op_type == "AveragePool" and any(pads):  # how much of both kinds of padding is counted differs
            return False
        summed = [old + new for old, new in zip(pads, added, strict=True)]
        if node.op_type == "AveragePool" and not _smaller_than_window(node, summed):
            return False
        inputs = [before.inputs[0], *node.inputs[1:]]
        editor.replace(node, node.op_type, inputs, {**node.attributes, "pads": summed}, absorbed=[before])
        return True


def _zero_padding(node: ir.Node) -> list[int] | None:
    """What a Pad adds before and after each spatial axis; None unless it is zeros and there only."""
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


def _smaller_than_window(node: ir.Node, pads: list[int]) -> bool:
    """Pooling asks for padding smaller than its window."""
    window = attribute(node, "kernel_shape") * 2
    return all(pad < size for pad, size in zip(pads, window, strict=True))
