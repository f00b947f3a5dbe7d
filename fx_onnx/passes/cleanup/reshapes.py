"""Merging of consecutive Reshape, Flatten, Squeeze and Unsqueeze nodes."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.core import metadata
from fx_onnx.core.size_rules import constant_reshape
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
        sizes = _constant_shape(origin, output, editor.model)
        if sizes is None:
            return self.declines(node, "a constant cannot express the shape %s", output.shape)
        editor.replace(node, "Reshape", [origin, editor.constant(sizes, node)], {}, absorbed=[before])
        return True


def _constant_shape(origin: ir.Value, output: ir.Value, model: ir.Model) -> list[int] | None:
    """Returns the constant shape input of a Reshape from ``origin`` to ``output``; None if there is none.

    Data-dependent dims may be 0. If the model does not record which dims these are, any dim may be 0.
    """
    new = dims(output)
    if new is None or 0 in new:
        return None
    data_dependent: frozenset[str] | None = model.meta.get(metadata.DATA_DEPENDENT_DIMS)
    return constant_reshape(dims(origin), new, lambda dim: data_dependent is None or dim in data_dependent)
