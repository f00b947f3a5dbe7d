"""Writes nodes for passes, as the emitter does for translations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.matchers import attribute
from fx_onnx.passes.rewriter import Editor

__all__ = ["Writer", "meant"]

_BOOLEAN = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})


class Writer:
    """Writes the nodes that a pass needs, as the emitter does for translations: ``f.Add(a, 1.0)``.

    They bear the name and the metadata of ``node``, and come before it in order, or behind what makes ``behind``. Their
    results have the dtype of the writer, or of the keyword ``dtype``, and the sizes of the keyword ``sizes``; numbers
    among the inputs are constants of the writer's dtype.
    """

    def __init__(self, node: ir.Node, editor: Editor, dtype: DataType | None, *, behind: Value | None = None) -> None:
        self.node, self.editor, self.dtype = node, editor, dtype or DataType.DOUBLE
        self._behind = behind

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)

        def write(
            *inputs: Any, dtype: DataType | None = None, sizes: Sequence[int | str] | None = None, **attributes: Any
        ) -> Value:
            return self.emit(op_type, inputs, attributes, dtype=dtype, sizes=sizes)[0]

        return write

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        *,
        dtype: DataType | None = None,
        sizes: Sequence[int | str] | None = None,
        outputs: int = 1,
    ) -> Sequence[Value]:
        """Writes a node; gives all its results, which have the same dtype and sizes."""
        values = [x if x is None or isinstance(x, Value) else self.constant(x) for x in inputs]
        node = ir.node(op_type, values, attributes, num_outputs=outputs, metadata_props=dict(self.node.metadata_props))
        node.name = self.editor.unique(f"{self.node.name or self.node.outputs[0].name}.{op_type}")
        for place, result in enumerate(node.outputs):
            result.name = node.name if outputs == 1 else self.editor.unique(f"{node.name}_{place}")
            result.type = ir.TensorType(DataType.BOOL if op_type in _BOOLEAN else dtype or self.dtype)
            result.shape = None if sizes is None else ir.Shape(sizes)
        if self._behind is None:
            self.editor.insert(node, self.node)
        else:
            self.editor.insert_after(node, self._behind)
            self._behind = node.outputs[0]
        return node.outputs

    def mask(self, x: Value) -> Value:
        """Which elements of ``x`` a Dropout keeps: each with probability 1/2, drawn anew at every run."""
        mask = self.emit("Dropout", [x, 0.5, np.array(True)], {}, outputs=2)[1]
        mask.type = ir.TensorType(DataType.BOOL)
        return mask

    def constant(self, number: Any) -> Value:
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
