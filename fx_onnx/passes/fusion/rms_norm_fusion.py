"""Fusion of RMS norms that the model computes from elementary operators."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import (
    attribute,
    commuted_inputs,
    constant_integers,
    constant_number,
    dims,
    is_absorbable,
    producer_of,
    same_shape,
    single_use_producer,
)
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseRMSNorm"]


class FuseRMSNorm(Rewrite):
    """x / Sqrt(ReduceMean(x * x) + epsilon) * w → RMSNormalization(x, w).

    Legal where the mean is over the last axes and w has their shape. The arithmetic must be float32, which is what the
    operator uses: a float16 or bfloat16 x is cast to float32 first, and back before the product with w.
    """

    name = "fuse_rms_norm"
    op_types = ("Mul",)
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses at the product with w."""
        for normalized, weight in commuted_inputs(node):
            back = single_use_producer(normalized, "Cast")
            quotient = back.inputs[0] if back is not None else normalized
            division = producer_of(quotient, "Div")
            if division is None or quotient is None or normalized is None or weight is None:
                continue
            x, root = division.inputs
            epsilon, axes = _match_root_mean_square(x, root)
            if x is None or epsilon is None or axes is None:
                continue
            if not is_absorbable(quotient):
                self.declines(node, "another node reads the Div")
                continue
            if dims(weight) != axes:
                self.declines(node, "the weight has shape %s and the normalized axes %s", dims(weight), axes)
                continue
            widened = producer_of(x, "Cast") if back is not None else None
            source = widened.inputs[0] if widened is not None else x
            if source is None or not source.dtype == normalized.dtype == weight.dtype or x.dtype != DataType.FLOAT:
                self.declines(node, "x, the weight and the result differ in dtype, or the arithmetic is not float32")
                continue
            if not same_shape(source, node.outputs[0]):
                self.declines(node, "the result has another shape than x")
                continue
            absorbed = [each for each in (division, back) if each is not None]
            attributes = {"axis": -len(axes), "epsilon": epsilon}
            editor.replace(node, "RMSNormalization", [source, weight], attributes, absorbed)
            return True
        return False


def _match_root_mean_square(
    x: ir.Value | None, root: ir.Value | None
) -> tuple[float | None, tuple[int | str, ...] | None]:
    """Matches Sqrt(ReduceMean(x * x) + epsilon) and returns epsilon and the sizes of the reduced axes, else Nones."""
    nothing = None, None
    sqrt = producer_of(root, "Sqrt")
    total = single_use_producer(sqrt.inputs[0], "Add") if sqrt is not None else None
    for mean, epsilon in commuted_inputs(total) if total is not None else ():
        added, reduction = constant_number(epsilon), single_use_producer(mean, "ReduceMean")
        if added is None or reduction is None:
            continue
        sizes = dims(x)
        axes = constant_integers(reduction.inputs[1]) if len(reduction.inputs) > 1 else None
        if sizes is None or not axes or not attribute(reduction, "keepdims", 1):
            continue
        if _is_square(reduction.inputs[0], x) and _are_last(axes, len(sizes)):
            return added, sizes[-len(axes) :]
    return nothing


def _is_square(value: ir.Value | None, x: ir.Value | None) -> bool:
    """Returns whether the value is x ** 2 or x * x."""
    power = producer_of(value, "Pow", "Mul")
    if power is None or not _is_same(power.inputs[0], x):
        return False
    if power.op_type == "Mul":
        return _is_same(power.inputs[1], x)
    return constant_number(power.inputs[1]) == 2.0


def _is_same(value: ir.Value | None, x: ir.Value | None) -> bool:
    """Returns whether both are the same value, or Casts of the same value to the same dtype."""
    first, second = producer_of(value, "Cast"), producer_of(x, "Cast")
    if value is x or first is None or second is None:
        return value is x
    return first.inputs[0] is second.inputs[0] and attribute(first, "to") == attribute(second, "to")


def _are_last(axes: list[int], rank: int) -> bool:
    return sorted(axis % rank for axis in axes) == list(range(rank - len(axes), rank))
