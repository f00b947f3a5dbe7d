"""The constants of a model: numbers in translations become initializers of the root graph; equal numbers share one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.messages.arguments import shown
from fx_onnx.onnx_model import dtypes
from fx_onnx.onnx_model.small_constants import ConstantKey
from fx_onnx.translation.known_sizes import record_sizes

Scalar = bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool
"""A Python number or a symbolic one."""

Operand = Value | Scalar
"""The form of a tensor argument in a translation: an ONNX value, or a number that becomes a constant."""

Numbers = Sequence["Scalar | Numbers"]

Input = Operand | Numbers | np.ndarray[Any, Any]
"""The form of an input of an emitted node: a value, a number, nested lists of numbers or an array."""

_NUMBER_DTYPES = {bool: DataType.BOOL, int: DataType.INT64, float: DataType.FLOAT}


class ConstantPool:
    """The constants of one model. Two constants are equal if they have the same dtype, shape and bytes."""

    def __init__(self, graph: ir.Graph, unique: Callable[[str], str]) -> None:
        """Registers initializers in ``graph``, under names that ``unique`` makes unique."""
        self._graph, self._unique = graph, unique
        self._values: dict[ConstantKey, Value] = {}

    def get(self, number: Any, dtype: DataType | None) -> Value:
        """Returns the initializer that holds a number, nested lists of numbers or an array.

        Args:
            number: the number, lists or array; not a symbolic number.
            dtype: None gives INT64 for ints, FLOAT for floats, BOOL for bools and an array's own dtype.

        Raises:
            TypeError: a float with a fraction cannot have an integer dtype, or the argument is no number.
        """
        if dtype is None:
            dtype = DataType.from_numpy(number.dtype) if isinstance(number, np.ndarray) else _default_dtype(number)
        if isinstance(number, float) and not number.is_integer() and dtypes.is_integer(dtype):
            raise TypeError(f"the number {number} cannot be a constant of an integer dtype: promote the operands first")
        array = np.asarray(number, dtype=dtype.numpy())
        key = (dtype, array.shape, array.tobytes())  # without a tensor, because most constants are known already
        value = self._values.get(key)
        if value is None:
            name = self._unique(f"constant_{len(self._values)}")
            tensor = ir.Tensor(array, dtype=dtype, name=name)
            value = Value(name=name, shape=tensor.shape, type=ir.TensorType(dtype), const_value=tensor)
            record_sizes(value, tensor.shape.numpy())
            self._graph.register_initializer(value)
            self._values[key] = value
        return value


def _default_dtype(value: Any) -> DataType:
    """Returns the default dtype of a number or of the first number in nested lists; raises TypeError for others."""
    while isinstance(value, (list, tuple)):
        value = value[0] if value else 0
    if (dtype := _NUMBER_DTYPES.get(type(value))) is None:
        raise TypeError(f"an input of a node is a value or a number, not {shown(value)}")
    return dtype
