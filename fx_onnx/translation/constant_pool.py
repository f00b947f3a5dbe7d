"""The constants of a model: numbers in translations become initializers of the root graph, each once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

# The key of ``Value.meta`` under which a value keeps its sizes, in torch's own terms (ints and SymInts).
SIZES = "sizes"

_NUMBER_DTYPES = {bool: DataType.BOOL, int: DataType.INT64, float: DataType.FLOAT}


class Constants:
    """The constants of one model, deduplicated by dtype, shape and bytes (so 0.0 and -0.0 stay two)."""

    def __init__(self, graph: ir.Graph, unique: Callable[[str], str]) -> None:
        self._graph, self._unique = graph, unique
        self._known: dict[tuple[DataType, tuple[int, ...], bytes], Value] = {}

    def get(self, array: np.ndarray[Any, Any], dtype: DataType) -> Value:
        """The initializer of the root graph that holds ``array``."""
        key = (dtype, array.shape, array.tobytes())
        value = self._known.get(key)
        if value is None:
            name = self._unique(f"constant_{len(self._known)}")
            tensor = ir.Tensor(array, dtype=dtype, name=name)
            value = Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(dtype), const_value=tensor)
            value.meta[SIZES] = array.shape
            self._graph.register_initializer(value)
            self._known[key] = value
        return value


def dtype_of_number(value: Any) -> DataType:
    """The dtype of a number, or of the numbers in nested lists, where nothing else decides it."""
    while isinstance(value, (list, tuple)):
        value = value[0] if value else 0
    return _NUMBER_DTYPES[type(value)]


def refuse_fractions(value: Any) -> None:
    """Raises TypeError for a number that an integer constant cannot hold."""
    if isinstance(value, float) and not value.is_integer():
        raise TypeError(f"the number {value} cannot be a constant of an integer dtype: promote the operands first")
