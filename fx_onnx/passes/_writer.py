"""Writes the nodes that stand for another one, as the emitter does for translations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.rewrite import Editor, attribute

__all__ = ["Writer", "meant"]

_BOOLEAN = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})


class Writer:
    """Writes nodes before the one that they stand for: ``f.Add(a, 1.0)``; numbers take the dtype of its first input."""

    def __init__(self, node: ir.Node, editor: Editor, x: Value) -> None:
        self.node, self.editor, self.dtype = node, editor, x.dtype or DataType.DOUBLE
        self._count = 0

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)

        def write(*inputs: Any, dtype: DataType | None = None, **attributes: Any) -> Value:
            values = [each if isinstance(each, Value) else self._constant(each) for each in inputs]
            return self.emit(op_type, values, attributes, dtype)

        return write

    def emit(
        self, op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, Any], dtype: DataType | None = None
    ) -> Value:
        """Writes a node; its result has ``dtype``, or that of the tensor."""
        node = ir.node(op_type, inputs, attributes, metadata_props=dict(self.node.metadata_props))
        return self._written(node, DataType.BOOL if op_type in _BOOLEAN else dtype or self.dtype)

    def mask(self, x: Value) -> Value:
        """Which elements of ``x`` a Dropout keeps: each with probability 1/2, drawn anew at every run."""
        node = ir.node("Dropout", [x, self._constant(0.5), self._constant(np.array(True))], num_outputs=2)
        node.metadata_props.update(self.node.metadata_props)
        self._written(node, self.dtype)
        node.outputs[1].name, node.outputs[1].type = f"{node.name}.mask", ir.TensorType(DataType.BOOL)
        return node.outputs[1]

    def _written(self, node: ir.Node, dtype: DataType) -> Value:
        """Names the node, places it, and gives its first result."""
        node.outputs[0].name = node.name = self.editor.unique(f"{self.node.name}.{node.op_type}_{self._count}")
        self._count += 1
        node.outputs[0].type = ir.TensorType(dtype)
        self.editor.insert(node, self.node)
        return node.outputs[0]

    def _constant(self, number: Any) -> Value:
        """A number in the dtype of the tensor, a list of integers or an array as they are."""
        if isinstance(number, (int, float)):
            number = np.array(number, dtype=self.dtype.numpy())
        return self.editor.constant(number, self.node)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute of the node."""
        return attribute(self.node, name, default)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's scheme, the constant term first."""
        result: Value = self.Add(self.Mul(x, coefficients[-1]), coefficients[-2])
        for each in coefficients[-3::-1]:
            result = self.Add(self.Mul(result, x), each)
        return result

    def log1p(self, x: Value) -> Value:
        """log(1 + x), accurate near zero too: what 1 + x rounds away is made good by the slope."""
        u = self.Add(x, 1.0)
        log = self.Log(u)
        slope = self.Div(x, self.Sub(u, 1.0))
        small = self.Where(self.Equal(u, 1.0), x, self.Mul(log, slope))
        return self.Where(self.Less(x, 1.0), small, log)

    def odd(self, x: Value, of_positive: Value) -> Value:
        """-f(-x) where x is negative."""
        return self.Where(self.Less(x, 0.0), self.Neg(of_positive), of_positive)


def meant(number: float) -> float:
    """The simple fraction or decimal that float32 rounded to ``number``."""
    sixths = round(number * 6) / 6
    return sixths if np.float32(sixths) == np.float32(number) else float(str(np.float32(number)))
