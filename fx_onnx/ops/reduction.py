"""ATen reductions → ONNX."""

from collections.abc import Sequence
from typing import Any

import torch
from onnx_ir import DataType, Value

from fx_onnx.core.translation_table import translates
from fx_onnx.ops._common import admitted
from fx_onnx.translation.emitter import Emitter, Scalar

aten = torch.ops.aten
Dims = int | Sequence[int] | None


def reduce(op: Emitter, op_type: str, self: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """One Reduce node over ``dim`` (None or none: all), in a dtype that the operator admits.

    The axes are counted from the front: of negative ones ONNX Runtime makes the wrong shape where a tensor is empty.
    """
    rank = op.rank(self)
    dims = () if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = sorted(axis % rank for axis in dims) if dims and rank else None
    result: Value = op.emit(op_type, admitted(op, op_type, self), axes, keepdims=1 if keepdim else 0)
    return result if self.dtype is None else op.cast(result, self.dtype)


def _is_not_empty(self: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    """ONNX does not say what the mean of nothing is; ONNX Runtime does not take the maximum of no booleans."""
    return all(not isinstance(size, int) or size > 0 for size in self.shape)


@translates(aten.sum.default)
def aten_sum(op: Emitter, self: Value, *, dtype: torch.dtype | None = None) -> Value:
    """Σ self, in int64 for integers."""
    return reduce(op, "ReduceSum", op.cast(self, op.out_dtype))


@translates(aten.sum.dim_IntList)
def aten_sum_dim(
    op: Emitter, self: Value, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    """Σ self over ``dim``, in int64 for integers."""
    return reduce(op, "ReduceSum", op.cast(self, op.out_dtype), dim, keepdim)


@translates(aten.mean.default, supports=_is_not_empty)
def aten_mean(op: Emitter, self: Value, *, dtype: torch.dtype | None = None) -> Value:
    """Σ self / n."""
    return reduce(op, "ReduceMean", op.cast(self, op.out_dtype))


@translates(aten.mean.dim, supports=_is_not_empty)
def aten_mean_dim(
    op: Emitter, self: Value, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    """Σ self / n over ``dim``."""
    return reduce(op, "ReduceMean", op.cast(self, op.out_dtype), dim, keepdim)


@translates(aten.prod.default)
def aten_prod(op: Emitter, self: Value, *, dtype: torch.dtype | None = None) -> Value:
    """∏ self, in int64 for integers."""
    return reduce(op, "ReduceProd", op.cast(self, op.out_dtype))


@translates(aten.prod.dim_int)
def aten_prod_dim(
    op: Emitter, self: Value, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    """∏ self over ``dim``, in int64 for integers."""
    return reduce(op, "ReduceProd", op.cast(self, op.out_dtype), dim, keepdim)


@translates(aten.amax.default)
def aten_amax(op: Emitter, self: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    """max self over ``dim``."""
    return reduce(op, "ReduceMax", self, dim, keepdim)


@translates(aten.amin.default)
def aten_amin(op: Emitter, self: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    """min self over ``dim``."""
    return reduce(op, "ReduceMin", self, dim, keepdim)


@translates(aten.max.default)
def aten_max(op: Emitter, self: Value) -> Value:
    """max self."""
    return reduce(op, "ReduceMax", self)


@translates(aten.min.default)
def aten_min(op: Emitter, self: Value) -> Value:
    """min self."""
    return reduce(op, "ReduceMin", self)


@translates(aten.max.dim)
def aten_max_dim(op: Emitter, self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """max self over ``dim`` and the first index of each."""
    return reduce(op, "ReduceMax", self, dim, keepdim), _index(op, "ArgMax", self, dim, keepdim)


@translates(aten.min.dim)
def aten_min_dim(op: Emitter, self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """min self over ``dim`` and the first index of each."""
    return reduce(op, "ReduceMin", self, dim, keepdim), _index(op, "ArgMin", self, dim, keepdim)


@translates(aten.argmax.default)
def aten_argmax(op: Emitter, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The first index of the maximum, in the flattened tensor without ``dim``."""
    return _index(op, "ArgMax", self, dim, keepdim)


@translates(aten.argmin.default)
def aten_argmin(op: Emitter, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The first index of the minimum, in the flattened tensor without ``dim``."""
    return _index(op, "ArgMin", self, dim, keepdim)


def _index(op: Emitter, op_type: str, self: Value, dim: int | None, keepdim: bool) -> Value:
    """ArgMax or ArgMin over one axis; over all of them of the flattened tensor."""
    self = admitted(op, op_type, self)
    rank = op.rank(self)
    if dim is not None and rank:
        return op.emit(op_type, self, axis=dim, keepdims=1 if keepdim else 0)
    flat = self if rank == 1 else op.Reshape(self, [-1])
    index: Value = op.emit(op_type, flat, axis=0, keepdims=1 if keepdim and rank == 1 else 0)
    return op.Reshape(index, [1] * rank) if keepdim and rank > 1 else index


@translates(aten.any.default, aten._is_any_true.default, supports=_is_not_empty)
def aten_any(op: Emitter, self: Value) -> Value:
    """Whether anything is not zero; uint8 stays uint8, as in torch."""
    return _logical(op, "ReduceMax", self, None)


@translates(aten.any.dim, aten.any.dims, supports=_is_not_empty)
def aten_any_dim(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """Whether anything along ``dim`` is not zero; an empty list of dims reduces none."""
    return _logical(op, "ReduceMax", self, dim, keepdim)


@translates(aten.all.default, aten._is_all_true.default, supports=_is_not_empty)
def aten_all(op: Emitter, self: Value) -> Value:
    """Whether nothing is zero; uint8 stays uint8, as in torch."""
    return _logical(op, "ReduceMin", self, None)


@translates(aten.all.dim, aten.all.dims, supports=_is_not_empty)
def aten_all_dim(op: Emitter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """Whether nothing along ``dim`` is zero; an empty list of dims reduces none."""
    return _logical(op, "ReduceMin", self, dim, keepdim)


def _logical(op: Emitter, op_type: str, self: Value, dim: Dims, keepdim: bool = False) -> Value:
    truth = op.cast(self, DataType.BOOL)
    if dim is None or isinstance(dim, int) or len(dim):
        truth = reduce(op, op_type, truth, dim, keepdim)
    return op.cast(truth, op.out_dtype)


@translates(aten.logsumexp.default)
def aten_logsumexp(op: Emitter, self: Value, dim: Dims, keepdim: bool = False) -> Value:
    """log Σ exp(self) over ``dim``."""
    return reduce(op, "ReduceLogSumExp", op.cast(self, op.out_dtype), dim, keepdim)


def _is_l1_or_l2(
    self: torch.Tensor, ord: Scalar = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> bool:
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
    """Σ |self| for order 1, √Σ self² for order 2; the other orders are decomposed."""
    return reduce(op, "ReduceL1" if ord == 1 else "ReduceL2", op.cast(self, op.out_dtype), dim, keepdim)
