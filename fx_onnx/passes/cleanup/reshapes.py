"""Merging of consecutive Reshape, Flatten, Squeeze and Unsqueeze nodes."""

from __future__ import annotations

import re

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims, producer_of, same_shape, single_use
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["MergeReshapes"]

_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


class MergeReshapes(Rewrite):
    """View(View(x)) → Reshape(x), or x if the shapes are equal; a view that keeps the shape → its input.

    A view is a Reshape, Flatten, Squeeze or Unsqueeze. Legal because all four keep the elements in order, so that only
    the last shape matters. Applies where a constant can express that shape: each dim is a number, a copy (0) of the
    input's dim at the same place, or the one dim that Reshape infers (-1). A dim cannot be inferred beside a dim that
    may be 0.
    """

    name = "merge_reshapes"
    op_types = _VIEWS

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Merges one view with the view before it."""
        source, output = node.inputs[0], node.outputs[0]
        if source is None:
            return False
        if same_shape(source, output):
            return editor.replace_with_value(node, source)
        before = producer_of(source, *_VIEWS)
        origin = before.inputs[0] if before is not None else None
        if before is None or origin is None:
            return False
        if same_shape(origin, output) and editor.replace_with_value(node, origin):
            return True
        if not single_use(source):
            return self.declines(node, "another node reads the %s", before.op_type)
        sizes = _constant_sizes(dims(origin), dims(output))
        if sizes is None:
            return self.declines(node, "a constant cannot express the shape %s", output.shape)
        editor.replace(node, "Reshape", [origin, editor.constant(sizes, node)], {}, absorbed=[before])
        return True


def _constant_sizes(old: tuple[int | str, ...] | None, new: tuple[int | str, ...] | None) -> list[int] | None:
    """The shape input of a Reshape: 0 copies the size at the same place, one -1 is worked out; None if not enough."""
    if new is None:
        return None
    names = [i for i, size in enumerate(new) if isinstance(size, str)]
    if not names:
        return None if 0 in new else [size for size in new if isinstance(size, int)]
    if 0 in new:
        return None
    copied = {i for i in names if old is not None and i < len(old) and old[i] == new[i]} if len(names) > 1 else set()
    worked_out = len(names) - len(copied)
    if worked_out > 1 or (worked_out and any(_is_count(str(new[i])) for i in copied)):
        return None
    return [size if isinstance(size, int) else 0 if i in copied else -1 for i, size in enumerate(new)]


def _is_count(size: str) -> bool:
    """Whether a size is, or comes from, a number of things found in the data (torch calls it u0): there may be none."""
    return re.search(r"\bu\d+\b", size) is not None
