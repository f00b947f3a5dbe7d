"""Activations that the model's code spells out, as one node."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import commuted_inputs, constant_number, same_shape, single_use_producer
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseGelu", "FuseSwish"]


class FuseGelu(Rewrite):
    """0.5 * x * (1 + Tanh(√(2/π) * (x + 0.044715 * x³))) → Gelu(x, tanh); x * 0.5 * (1 + Erf(x / √2)) → Gelu(x).

    The factors may come in any order, as constants within float32's precision of these numbers. Legal where no other
    node reads what is between.
    """

    name = "fuse_gelu"
    op_types = ("Mul",)
    since = 20

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses at the last product."""
        factor, factors = _factors(node)
        plus = next((found for each in factors if (found := _one_plus(each)) is not None), None)
        if plus is None or not _is(factor, 0.5) or len(factors) != 2:
            return False
        total, inner = plus
        x = next(each for each in factors if each is not total)
        if inner.op_type == "Erf":
            scale, scaled = _factors(inner.inputs[0])
            if scaled != [x] or not _is(scale, math.sqrt(0.5)):
                return False
        elif not _is_cubic(inner.inputs[0], x):
            return False
        if not same_shape(x, node.outputs[0]) or x.dtype != node.outputs[0].dtype:
            return False
        approximate = "tanh" if inner.op_type == "Tanh" else None
        editor.replace(node, "Gelu", [x], {"approximate": approximate}, absorbed=[inner])
        return True


class FuseSwish(Rewrite):
    """x * Sigmoid(alpha * x) → Swish(x, alpha), alpha a constant or 1. Legal where no other node reads the Sigmoid."""

    name = "fuse_swish"
    op_types = ("Mul",)
    since = 24

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses at the product."""
        for x, other in commuted_inputs(node):
            sigmoid = single_use_producer(other, "Sigmoid")
            if sigmoid is None or x is None:
                continue
            alpha, scaled = (1.0, [x]) if sigmoid.inputs[0] is x else _factors(sigmoid.inputs[0])
            if scaled == [x] and same_shape(x, node.outputs[0]) and _is_held(alpha, x.dtype):
                editor.replace(node, "Swish", [x], {"alpha": alpha}, absorbed=[sigmoid])
                return True
        return False


def _is(factor: float, expected: float) -> bool:
    return math.isclose(factor, expected, rel_tol=2e-7)


def _is_held(alpha: float, dtype: DataType | None) -> bool:
    """Whether an attribute, which is a float32, is as exact as a constant of the dtype."""
    return dtype != DataType.DOUBLE or float(np.float32(alpha)) == alpha


def _factors(start: ir.Node | ir.Value | None) -> tuple[float, list[ir.Value]]:
    """The product of all numbers, and the other factors, of nested Muls, and Divs by numbers, with one reader each."""
    node = start if isinstance(start, ir.Node) else single_use_producer(start, "Mul", "Div")
    if (
        node is None
        or len(node.inputs) != 2
        or (node.op_type == "Div" and constant_number(node.inputs[1]) in (None, 0.0))
    ):
        return 1.0, [start] if isinstance(start, ir.Value) else []
    product = 1.0
    factors: list[ir.Value] = []
    for place, value in enumerate(node.inputs):
        found = constant_number(value)
        if found is not None:
            product = product / found if node.op_type == "Div" and place else product * found
        else:
            inner, others = _factors(value)
            product, factors = product * inner, factors + others
    return product, factors


def _one_plus(value: ir.Value) -> tuple[ir.Value, ir.Node] | None:
    """1 + f(...), f being Erf or Tanh: the value, and the node of f."""
    node = single_use_producer(value, "Add")
    for one, other in commuted_inputs(node) if node is not None else ():
        inner = single_use_producer(other, "Erf", "Tanh")
        if inner is not None and constant_number(one) == 1.0:
            return value, inner
    return None


def _is_cubic(value: ir.Value | None, x: ir.Value) -> bool:
    """Whether it is √(2/π) * (x + 0.044715 * x³)."""
    scale, inner = _factors(value)
    total = single_use_producer(inner[0], "Add") if len(inner) == 1 else None
    if total is None or not _is(scale, math.sqrt(2 / math.pi)) or x not in total.inputs:
        return False
    cubic = total.inputs[1 - total.inputs.index(x)]
    factor, powers = _factors(cubic)
    if not _is(factor, 0.044715):
        return False
    if powers == [x, x, x]:
        return True
    power = single_use_producer(powers[0], "Pow") if len(powers) == 1 else None
    return power is not None and power.inputs[0] is x and constant_number(power.inputs[1]) == 3.0
