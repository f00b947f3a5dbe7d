"""The emitter's helpers for translations: constants, casts, type promotion, shapes and views.

A helper records the sizes of its result, so that other helpers can use them, and emits nothing where its result would
equal its operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation import promotion
from fx_onnx.translation.constant_pool import ConstantPool, Operand
from fx_onnx.translation.known_sizes import known_sizes, record_sizes
from fx_onnx.translation.node_emitter import NodeEmitter
from fx_onnx.translation.size_values import SymbolTable


class TensorHelpers(NodeEmitter):
    """Adds the ``op.snake_case(...)`` helpers to the creation of nodes.

    Attributes:
        symbols: the values of symbolic sizes in this graph.
        out: the fake tensors and symbolic numbers that the FX node under translation returns, flattened.
    """

    def __init__(
        self, graph: ir.Graph, opset: int, symbol_table: SymbolTable, parent: TensorHelpers | None = None
    ) -> None:
        super().__init__(graph, opset, parent)
        self.symbols = symbol_table
        self.out: tuple[Any, ...] = () if parent is None else parent.out
        self._constants: ConstantPool = ConstantPool(graph, self.names.unique) if parent is None else parent._constants

    # ---------------------------------------------------------------- sizes and dtypes

    def sizes(self, value: Value) -> tuple[Size, ...]:
        """Returns the sizes of a value in torch's terms: ints and SymInts.

        Raises:
            LookupError: the value is neither the result of an FX node nor of a helper that records sizes.
        """
        sizes = known_sizes(value)
        if sizes is None:
            raise LookupError(f"the sizes of the intermediate value {value.name} are not known")
        return sizes

    def rank(self, value: Value) -> int:
        """Returns the number of dimensions of a value; raises as ``sizes`` does."""
        return len(self.sizes(value))

    def with_sizes(self, value: Value, sizes: Sequence[Size]) -> Value:
        """Records the sizes of an intermediate value for the helpers that use it, and returns the value."""
        return record_sizes(value, sizes)

    @property
    def out_dtype(self) -> DataType:
        """The ONNX dtype of the first result of the FX node under translation."""
        return dtypes.onnx_dtype(self.out[0].dtype)

    @property
    def out_sizes(self) -> tuple[Size, ...]:
        """The sizes of the first result of the FX node under translation."""
        return tuple(map(symbolic_sizes.static, self.out[0].shape))

    # ---------------------------------------------------------------- constants and casts

    def number(self, value: Any, dtype: DataType | None) -> Value:
        """Returns a number, symbolic or not, or a list or array of numbers as a value of ``dtype``."""
        if isinstance(value, symbolic_sizes.SymbolicNumber):
            scalar = self.symbols.value(self, value, rank=0)
            return scalar if dtype is None else self.cast(scalar, dtype)
        return self.constant(value, dtype)

    def constant(self, value: Any, dtype: DataType | torch.dtype | None = None) -> Value:
        """Returns a constant (an initializer of the root graph) from a number, nested lists of numbers or an array.

        Without a dtype: INT64 for ints, FLOAT for floats, BOOL for bools, the array's own for arrays. A list that
        contains SymInts becomes the 1-D value that ``shape`` gives.
        """
        if isinstance(dtype, torch.dtype):
            dtype = dtypes.onnx_dtype(dtype)
        if isinstance(value, (list, tuple)) and any(isinstance(x, torch.SymInt) for x in value):
            return self.shape(value)
        return self._constants.get(value, dtype)

    def cast(self, value: Operand, dtype: DataType | torch.dtype) -> Value:
        """Returns an operand in another dtype; a number becomes 0-d, and an integer wraps as in torch."""
        target = dtypes.onnx_dtype(dtype) if isinstance(dtype, torch.dtype) else dtype
        if isinstance(value, symbolic_sizes.SymbolicNumber):
            value = self.symbols.value(self, value, rank=0)
        if not isinstance(value, Value):
            if target == DataType.BOOL or dtypes.is_integer(target):
                value = bool(value) if target == DataType.BOOL else dtypes.wrapped(int(value), target)
            return self.constant(value, target)
        if value.dtype == target:
            return value
        if target == DataType.FLOAT8E8M0:
            raise NotImplementedError("torch's cast to float8_e8m0fnu drops the sign, which ONNX's does not")
        # Without the attribute, an opset that lacks it is refused later, in a sentence about the dtype.
        overflows = dtypes.overflows(target) and self.opset >= dtypes.since_opset(target)
        result = self.Cast(value, to=target, saturate=0 if overflows else None)
        old = known_sizes(value)
        return result if old is None else record_sizes(result, old)

    def promote(self, *operands: Operand, dtype: torch.dtype | None = None) -> tuple[Value, ...]:
        """Returns the operands in ``dtype``, or in the dtype to which torch's type promotion brings them."""
        if dtype is None:
            dtype = self.result_type(*operands)
        return tuple(self.cast(x, dtype) for x in operands)

    def result_type(self, *operands: Operand) -> torch.dtype:
        """Returns ``torch.result_type`` of values and numbers.

        Raises:
            LookupError: the dtype or the rank of a value is not known.
        """
        return promotion.result_type(
            (dtypes.torch_dtype(_known_dtype(x)), self.rank(x))
            if isinstance(x, Value)
            else (promotion.number_dtype(x), None)
            for x in operands
        )

    # ---------------------------------------------------------------- shapes

    def shape(self, sizes: Sequence[Size]) -> Value:
        """Returns sizes as a 1-D INT64 value: a constant if all are known, else a Concat with the symbolic ones."""
        sizes = [symbolic_sizes.static(size) for size in sizes]
        if all(isinstance(size, int) for size in sizes):
            return self.constant(list(sizes), DataType.INT64)
        parts: list[Value | list[int]] = []
        for size in sizes:
            if not isinstance(size, int):
                parts.append(self.symbols.value(self, size))
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(size)
            else:
                parts.append([size])
        if len(parts) == 1:
            return parts[0] if isinstance(parts[0], Value) else self.constant(parts[0])
        return record_sizes(self.Concat(*parts, axis=0), (len(sizes),))

    def reshape(self, value: Value, sizes: Sequence[Size], requested: Sequence[Size] = ()) -> Value:
        """Returns the value reshaped to ``sizes``; the shape input is a constant if ONNX can express it as one.

        ``requested`` are the sizes that the model gives, of which one may be -1. They are taken where a constant cannot
        express the sizes of the result, because torch may simplify the inferred size by a guard.
        """
        sizes = [symbolic_sizes.static(size) for size in sizes]
        old = known_sizes(value)
        if _are_same(old, sizes):
            return value
        target = symbolic_sizes.constant_shape(old, sizes)
        if target is None:  # allowzero, because a size that is 0 at run time must not mean "copy this dim"
            return record_sizes(self.Reshape(value, self.shape(requested or sizes), allowzero=1), sizes)
        empty = any(isinstance(size, int) and size == 0 for size in sizes)
        return record_sizes(self.Reshape(value, target, allowzero=1 if empty else None), sizes)

    def expand(self, value: Value, sizes: Sequence[Size]) -> Value:
        """Returns the value broadcast to ``sizes``."""
        sizes = [symbolic_sizes.static(size) for size in sizes]
        if _are_same(known_sizes(value), sizes):
            return value
        return record_sizes(self.Expand(value, self.shape(sizes)), sizes)

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """Returns the value with its axes permuted: axis i of the result is axis ``perm[i]`` of the value."""
        perm = [axis % len(perm) for axis in perm] if perm else []
        if list(perm) == list(range(len(perm))):
            return value
        result = self.Transpose(value, perm=perm)
        old = known_sizes(value)
        return result if old is None else record_sizes(result, [old[axis] for axis in perm])

    def unsqueeze(self, value: Value, *axes: int) -> Value:
        """Returns the value with axes of size 1 inserted; ``axes`` count in the result, as in ONNX Unsqueeze."""
        if not axes:
            return value
        result = self.Unsqueeze(value, list(axes))
        old = known_sizes(value)
        if old is None:
            return result
        rank, rest = len(old) + len(axes), iter(old)
        inserted = {axis % rank for axis in axes}
        return record_sizes(result, [1 if i in inserted else next(rest) for i in range(rank)])

    def squeeze(self, value: Value, *axes: int) -> Value:
        """Returns the value without ``axes``, each of which has size 1."""
        if not axes:
            return value
        result = self.Squeeze(value, list(axes))
        old = known_sizes(value)
        if old is None:
            return result
        removed = {axis % len(old) for axis in axes}
        return record_sizes(result, [size for i, size in enumerate(old) if i not in removed])


def _are_same(old: Sequence[Size] | None, new: Sequence[Size]) -> bool:
    return old is not None and len(old) == len(new) and all(map(symbolic_sizes.same_size, old, new))


def _known_dtype(value: Value) -> DataType:
    if value.dtype is None:
        raise LookupError(f"the dtype of the intermediate value {value.name} is not known")
    return value.dtype
