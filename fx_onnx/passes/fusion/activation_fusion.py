"""Fusion of activations that the model computes from elementary operators."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import (
    commuted_inputs,
    constant_number,
    is_absorbable,
    producer_of,
    same_shape,
    single_use_producer,
)
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseGelu", "FuseSwish"]


class FuseGelu(Rewrite):
    """0.5 * x * (1 + Tanh(√(2/π) * (x + 0.044715 * x³))) → Gelu(x, tanh); x * 0.5 * (1 + Erf(x / √2)) → Gelu(x).

    Legal where the constants equal these numbers within float32's precision. The factors may come in any order. No
    other node may read an intermediate result.
    """

    name = "fuse_gelu"
    op_types = ("Mul",)
    since = 20

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses at the last product."""
        factor, factors = _factors(node)
        plus = next((found for each in factors if (found := _one_plus(each)) is not None), None)
        if plus is None:
            return False
        if not _is(factor, 0.5) or len(factors) != 2:
            return self.declines(
                node, "it is not 0.5 * x * (1 + f(x)), but a product of %s and %s other factors", factor, len(factors)
            )
        total, inner = plus
        x = next(each for each in factors if each is not total)
        if inner.op_type == "Erf":
            scale, scaled = _factors(inner.inputs[0])
            if scaled != [x] or not _is(scale, math.sqrt(0.5)):
                return self.declines(node, "the Erf is not of x / sqrt(2)")
        elif not _is_cubic(inner.inputs[0], x):
            return self.declines(node, "the Tanh is not of sqrt(2 / pi) * (x + 0.044715 * x ** 3)")
        if not same_shape(x, node.outputs[0]) or x.dtype != node.outputs[0].dtype:
            return self.declines(node, "the result has another shape or dtype than x")
        approximate = "tanh" if inner.op_type == "Tanh" else None
        editor.replace(node, "Gelu", [x], {"approximate": approximate}, absorbed=_nodes_between(x, node))
        return True


class FuseSwish(Rewrite):
    """x * Sigmoid(alpha * x) → Swish(x, alpha), where alpha is a constant or 1.

    Legal where a float32 represents alpha exactly, because the attribute is a float32. No other node may read the
    Sigmoid.
    """

    name = "fuse_swish"
    op_types = ("Mul",)
    since = 24

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses at the product."""
        for x, other in commuted_inputs(node):
            sigmoid = producer_of(other, "Sigmoid")
            if sigmoid is None or x is None or other is None:
                continue
            alpha, scaled = (1.0, [x]) if sigmoid.inputs[0] is x else _factors(sigmoid.inputs[0])
            if not is_absorbable(other):
                self.declines(node, "another node reads the Sigmoid")
            elif scaled != [x] or not same_shape(x, node.outputs[0]):
                self.declines(node, "the Sigmoid is of another value than the other factor")
            elif not _is_exact(alpha, x.dtype):
                self.declines(node, "alpha = %s is not exact as a float32 attribute", alpha)
            else:
                editor.replace(node, "Swish", [x], {"alpha": alpha}, absorbed=_nodes_between(x, node))
                return True
        return False


def _nodes_between(x: ir.Value, node: ir.Node) -> list[ir.Node]:
    """Returns the nodes through which a matched pattern computes ``node`` from ``x``, without both, last node first."""
    found: dict[ir.Node, None] = {}
    remaining = [node]
    while remaining:
        for value in remaining.pop().inputs:
            producer = None if value is None or value is x or constant_number(value) is not None else value.producer()
            if producer is not None:
                found[producer] = None
                remaining.append(producer)
    return list(found)


def _is(factor: float, expected: float) -> bool:
    """Returns whether two numbers are equal within float32's precision."""
    return math.isclose(factor, expected, rel_tol=2e-7)


def _is_exact(alpha: float, dtype: DataType | None) -> bool:
    """Returns whether a float32 attribute represents alpha as exactly as a constant of the dtype does."""
    return dtype != DataType.DOUBLE or float(np.float32(alpha)) == alpha


def _factors(start: ir.Node | ir.Value | None) -> tuple[float, list[ir.Value]]:
    """Decomposes nested Muls, and Divs by constants, into the product of the constants and the other factors.

    Only nodes whose result has one consumer are decomposed; any other value is a factor.
    """
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
    """Matches 1 + f(...), where f is Erf or Tanh, and returns the value and the node of f."""
    node = single_use_producer(value, "Add")
    for one, other in commuted_inputs(node) if node is not None else ():
        inner = single_use_producer(other, "Erf", "Tanh")
        if inner is not None and constant_number(one) == 1.0:
            return value, inner
    return None


def _is_cubic(value: ir.Value | None, x: ir.Value) -> bool:
    """Returns whether the value is √(2/π) * (x + 0.044715 * x³)."""
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
