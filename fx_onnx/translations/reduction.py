"""Reductions: sums, extremes, any, all, norms."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes.symbolic_sizes import may_be_empty
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Scalar
from fx_onnx.translations._widening import widened

Dims = int | Sequence[int] | None


def reduce(op: Emitter, op_type: str, self: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Emits one Reduce node over ``dim`` (None or empty: all axes), in a dtype that the operator admits.

    Axes are counted from the front, because ONNX Runtime infers a wrong shape from negative axes of an empty tensor.
    """
    rank = op.rank(self)
    dims = () if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = sorted(axis % rank for axis in dims) if dims and rank else None
    result: Value = op.emit(op_type, widened(op, op_type, self), axes, keepdims=1 if keepdim else 0)
    return result if self.dtype is None else op.cast(result, self.dtype)


def _is_not_empty(self: torch.Tensor) -> bool:
    """Returns whether self has elements where the inputs have some.

    The mean of no elements is NaN, for which ONNX has no definition and ONNX Runtime 0.
    """
    return not any(map(may_be_empty, self.shape))


def _reduces_elements(self: torch.Tensor, dim: Dims = None) -> bool:
    """Returns whether no reduced axis can be empty: the largest of no booleans is false in torch, and an error in ONNX.

    ONNX Runtime gives true instead of an error below opset 20.
    """
    axes = range(self.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    return all(isinstance(size := self.shape[axis], int) and size > 0 for axis in axes if self.dim())


# ---------------------------------------------------------------- sums, means, products


def _cannot_saturate(dtype: torch.dtype | None = None) -> bool:
    """Returns whether the product has no integer dtype below 64 bits, whose numbers ONNX Runtime saturates."""
    return dtype is None or dtype in (torch.bool, torch.int64) or dtype.is_floating_point


_SUMS = {
    "ReduceSum": (aten.sum.default, aten.sum.dim_IntList, None),
    "ReduceMean": (aten.mean.default, aten.mean.dim, _is_not_empty),
    "ReduceProd": (aten.prod.default, aten.prod.dim_int, _cannot_saturate),
}


def _whole_sum(op_type: str) -> Callable[..., Value]:
    def aten_reduce(op: Emitter, self: Value, *, dtype: torch.dtype | None = None) -> Value:
        """Emits one Reduce node over all axes, in the dtype of the result: int64 for the sum of integers."""
        return _accumulated(op, op_type, self)

    return aten_reduce


def _sum_over_dims(op_type: str) -> Callable[..., Value]:
    def aten_reduce_dim(
        op: Emitter, self: Value, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
    ) -> Value:
        """Emits one Reduce node over ``dim``, in the dtype of the result: int64 for the sum of integers."""
        return _accumulated(op, op_type, self, dim, keepdim)

    return aten_reduce_dim


def _accumulated(op: Emitter, op_type: str, self: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Returns a sum, mean or product in the dtype of the result.

    A sum of smaller integers is computed in INT64 and wraps, as in torch; ONNX Runtime's own saturates.
    """
    self = op.cast(self, op.out_dtype)
    wide = op.cast(self, DataType.INT64) if dtypes.is_integer(op.out_dtype) else self
    return op.cast(reduce(op, op_type, wide, dim, keepdim), op.out_dtype)


for _op_type, (_whole, _over_dims, _condition) in _SUMS.items():
    translates(_whole, supports=_condition)(_whole_sum(_op_type))
    translates(_over_dims, supports=_condition)(_sum_over_dims(_op_type))


# ---------------------------------------------------------------- extremes

_EXTREMES = (
    ("ReduceMax", "ArgMax", aten.amax, aten.max, aten.argmax),
    ("ReduceMin", "ArgMin", aten.amin, aten.min, aten.argmin),
)


def _extreme(op_type: str) -> Callable[..., Value]:
    def aten_extreme(op: Emitter, self: Value, dim: Dims = (), keepdim: bool = False) -> Value:
        """Emits ReduceMax or ReduceMin over ``dim``."""
        return reduce(op, op_type, self, dim, keepdim)

    return aten_extreme


def _extreme_with_index(op_type: str, index_type: str) -> Callable[..., tuple[Value, Value]]:
    def aten_extreme_with_index(op: Emitter, self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        """Emits a Reduce node and the matching ArgMax or ArgMin, which give the extreme and its first index."""
        return reduce(op, op_type, self, dim, keepdim), _index(op, index_type, self, dim, keepdim)

    return aten_extreme_with_index


def _index_of_extreme(index_type: str) -> Callable[..., Value]:
    def aten_index_of_extreme(op: Emitter, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        """Emits ArgMax or ArgMin, which give the first index; without ``dim``, the index in the flattened tensor."""
        return _index(op, index_type, self, dim, keepdim)

    return aten_index_of_extreme


for _op_type, _index_type, _amax, _max, _argmax in _EXTREMES:
    translates(_amax.default, _max.default)(_extreme(_op_type))
    translates(_max.dim)(_extreme_with_index(_op_type, _index_type))
    translates(_argmax.default)(_index_of_extreme(_index_type))


def _index(op: Emitter, op_type: str, self: Value, dim: int | None, keepdim: bool) -> Value:
    """Emits ArgMax or ArgMin over one axis, or over the flattened tensor if ``dim`` is None.

    ONNX Runtime 1.31 returns the shape of the tensor where this is empty and the axis is negative.
    """
    self = widened(op, op_type, self)
    rank = op.rank(self)
    if dim is not None and rank:
        return op.emit(op_type, self, axis=dim % rank, keepdims=1 if keepdim else 0, outputs=1)
    flat = self if rank == 1 else op.Reshape(self, [-1])
    index: Value = op.emit(op_type, flat, axis=0, keepdims=1 if keepdim and rank == 1 else 0)
    return op.Reshape(index, [1] * rank) if keepdim and rank > 1 else index


# ---------------------------------------------------------------- any and all


@translates(aten.any.default, aten._is_any_true.default, supports=_reduces_elements)
def aten_any(op: Emitter, self: Value) -> Value:
    """Emits ReduceMax of the booleans; a uint8 result stays uint8, as in torch."""
    return _logical(op, "ReduceMax", self, None)


@translates(aten.any.dim, aten.any.dims, supports=_reduces_elements)
def aten_any_dim(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """Emits ReduceMax of the booleans over ``dim``; an empty list of dims reduces no axis."""
    return _logical(op, "ReduceMax", self, dim, keepdim)


@translates(aten.all.default, aten._is_all_true.default, supports=_reduces_elements)
def aten_all(op: Emitter, self: Value) -> Value:
    """Emits ReduceMin of the booleans; a uint8 result stays uint8, as in torch."""
    return _logical(op, "ReduceMin", self, None)


@translates(aten.all.dim, aten.all.dims, supports=_reduces_elements)
def aten_all_dim(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """Emits ReduceMin of the booleans over ``dim``; an empty list of dims reduces no axis."""
    return _logical(op, "ReduceMin", self, dim, keepdim)


def _logical(op: Emitter, op_type: str, self: Value, dim: Dims, keepdim: bool = False) -> Value:
    truth = op.cast(self, DataType.BOOL)
    if dim is None or isinstance(dim, int) or len(dim):
        truth = reduce(op, op_type, truth, dim, keepdim)
    return op.cast(truth, op.out_dtype)


# ---------------------------------------------------------------- norms


@translates(aten.logsumexp.default)
def aten_logsumexp(op: Emitter, self: Value, dim: Dims, keepdim: bool = False) -> Value:
    """Emits ReduceLogSumExp over ``dim``."""
    return reduce(op, "ReduceLogSumExp", op.cast(self, op.out_dtype), dim, keepdim)


def _is_l1_or_l2(self: torch.Tensor, ord: Scalar = 2) -> bool:
    return ord in (1, 2) and not self.is_complex()


@translates(aten.linalg_vector_norm.default, supports=_is_l1_or_l2)
def aten_linalg_vector_norm(
    op: Emitter,
    self: Value,
    ord: Scalar = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    """Emits ReduceL1 for order 1 and ReduceL2 for order 2; other orders are decomposed."""
    return reduce(op, "ReduceL1" if ord == 1 else "ReduceL2", op.cast(self, op.out_dtype), dim, keepdim)
