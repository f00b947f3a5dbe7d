"""Shape rules: the dtype and the sizes of an operator's result, without running the operator.

torch runs the operator on fake tensors, through its reference implementations and guards. That takes a third of a
millisecond for sizes that it has not seen, and several milliseconds for symbolic sizes. For most operators the result
follows from one line of their specification. A rule compares the expressions of symbolic sizes and adds no guards: it
returns None where the expressions do not decide, and torch runs the operator then.

Source: the documentation of torch, operator by operator; torch itself for dtypes, once for each kind of arguments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import sympy
import torch

from fx_onnx.aten.tracing.fake_tensors import Sizes, TensorSpec
from fx_onnx.sizes.size_rules import broadcast_shapes
from fx_onnx.sizes.symbolic_sizes import SizeExpression
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import FakeTensorMode, OpOverload

Rule: TypeAlias = Callable[..., TensorSpec | Sizes | None]
"""A function of a call's arguments, with specs for tensors and expressions for symbolic sizes.

It returns the spec of the result, or its sizes if torch determines the dtype, or None if it does not know the result.
"""

_Rule = TypeVar("_Rule", bound=Rule)

_RULES: dict[OpOverload, Rule] = {}


def infer_spec(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], mode: FakeTensorMode) -> TensorSpec | None:
    """Returns the spec of the one tensor that a call returns; None if there is no rule or the rule declines.

    Args:
        target: the operator.
        args, kwargs: its arguments, with specs for tensors and expressions for symbolic integers.
        mode: the mode in which torch determines the dtype.
    """
    rule = find_rule(target)
    if rule is None or (args and isinstance(args[0], (int, float, complex)) and _is_of_tensors(target)):
        return None
    sizes = rule(*args, **kwargs)
    if sizes is None or isinstance(sizes, TensorSpec):
        return sizes
    dtype = _dtype(target, args, kwargs, mode)
    return None if dtype is None else TensorSpec(dtype, sizes)


@functools.cache
def find_rule(target: Any) -> Rule | None:
    """Returns the rule of an operator; all operators that torch tags as pointwise share one."""
    if target in _RULES or not isinstance(target, OpOverload):
        return _RULES.get(target)
    results = target._schema.returns
    one_tensor = len(results) == 1 and str(results[0].type) == "Tensor" and results[0].alias_info is None
    is_pointwise = torch.Tag.pointwise in target.tags and torch.Tag.maybe_aliasing_or_mutating not in target.tags
    return _elementwise if one_tensor and is_pointwise else None


@functools.cache
def _is_of_tensors(target: OpOverload) -> bool:
    """Returns whether the schema's first argument is a tensor. torch also accepts a number there."""
    return str(target._schema.arguments[0].type) == "Tensor"


def _rule(*targets: OpOverload) -> Callable[[_Rule], _Rule]:
    def register(rule: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(targets, rule))
        return rule

    return register


# ---------------------------------------------------------------- dtypes

_dtypes: dict[Any, torch.dtype | None] = {}


def _dtype(
    target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], mode: FakeTensorMode
) -> torch.dtype | None:
    """Returns the dtype of a result, which torch computes on tensors of size 1; None if the operator refuses them."""
    key = (target, torch.get_default_dtype(), *map(_kind, args), *((name, _kind(kwargs[name])) for name in kwargs))
    if key not in _dtypes:
        try:
            with mode:
                named = {name: _example(value) for name, value in kwargs.items()}
                _dtypes[key] = target(*map(_example, args), **named).dtype
        except (RuntimeError, TypeError, ValueError, IndexError):  # the caller runs the call itself then
            _dtypes[key] = None
    return _dtypes[key]


def _kind(argument: Any) -> Any:
    """Returns the part of an argument that decides the dtype of the result."""
    if isinstance(argument, TensorSpec):
        return argument.dtype, len(argument.sizes)
    if isinstance(argument, (list, tuple)):
        return tuple(map(_kind, argument))
    if isinstance(argument, sympy.Basic):
        return int
    return type(argument) if isinstance(argument, (int, float, complex)) else argument


def _example(argument: Any) -> Any:
    """Returns an example of an argument's kind, with tensors of size 1."""
    if isinstance(argument, TensorSpec):
        return torch.empty([1] * len(argument.sizes), dtype=argument.dtype)
    if isinstance(argument, (list, tuple)):
        return list(map(_example, argument))
    return 1 if isinstance(argument, sympy.Basic) else argument


# ---------------------------------------------------------------- helpers of rules


def _axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _replaced(sizes: Sizes, axis: int, *new: SizeExpression) -> Sizes:
    return (*sizes[:axis], *new, *sizes[axis + 1 :])


def _are_numbers(sizes: Sequence[SizeExpression]) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _reduced(sizes: Sizes, axes: set[int], keepdim: bool) -> Sizes:
    kept = ((1 if axis in axes else size, axis) for axis, size in enumerate(sizes))
    return tuple(size for size, axis in kept if keepdim or axis not in axes)


# ---------------------------------------------------------------- elementwise operators


@_rule(
    aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar, aten.complex.default,
    *(getattr(getattr(aten, name), kind) for name in ("__and__", "__or__", "__xor__") for kind in ("Tensor", "Scalar")),
)  # fmt: skip
def _elementwise(*args: Any, **options: Any) -> Sizes | None:
    shapes = [spec.sizes for spec in (*args, *options.values()) if isinstance(spec, TensorSpec)]
    return broadcast_shapes(*shapes) if shapes else None


@_rule(
    aten.tril.default, aten.triu.default, aten.roll.default, aten.flip.default, aten.cumsum.default,
    aten.cumprod.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten.empty_like.default, aten._softmax.default, aten._log_softmax.default,
)  # fmt: skip
def _same_sizes(self: TensorSpec, *args: Any, **options: Any) -> Sizes:
    return self.sizes


@_rule(aten.conj.default, aten._conj.default, aten.resolve_conj.default, aten.alias.default)
def _same(self: TensorSpec) -> TensorSpec:
    return self


@_rule(aten.to.dtype)
def _to(self: TensorSpec, dtype: torch.dtype, *args: Any, **options: Any) -> TensorSpec:
    return TensorSpec(dtype, self.sizes)


@_rule(aten._to_copy.default)
def _to_copy(self: TensorSpec, *, dtype: torch.dtype | None = None, **options: Any) -> TensorSpec:
    return TensorSpec(self.dtype if dtype is None else dtype, self.sizes)


@_rule(aten.real.default, aten.imag.default)
def _part(self: TensorSpec) -> TensorSpec | None:
    return TensorSpec(self.dtype.to_real(), self.sizes) if self.dtype.is_complex else None


# ---------------------------------------------------------------- new tensors


@_rule(
    aten.full.default, aten.zeros.default, aten.ones.default, aten.empty.memory_format, aten.rand.default,
    aten.randn.default,
)  # fmt: skip
def _filled(size: Sequence[SizeExpression], *args: Any, **options: Any) -> Sizes:
    return tuple(size)


@_rule(aten.new_zeros.default, aten.new_ones.default, aten.new_full.default, aten.new_empty.default)
def _new(self: TensorSpec, size: Sequence[SizeExpression], *args: Any, **options: Any) -> Sizes:
    return tuple(size)


@_rule(aten.eye.default, aten.eye.m)
def _eye(n: SizeExpression, m: SizeExpression | None = None, **options: Any) -> Sizes:
    return n, n if m is None else m


@_rule(aten.arange.default, aten.arange.start, aten.arange.start_step)
def _arange(*bounds: Any, **options: Any) -> Sizes | None:
    if all(type(bound) is int for bound in bounds):
        return (len(range(*bounds)),)
    end = bounds[min(1, len(bounds) - 1)]
    from_zero = bounds in ((end,), (0, end), (0, end, 1))
    return (end,) if from_zero and isinstance(end, sympy.Basic) and end.is_nonnegative else None


# ---------------------------------------------------------------- indexing and dimensions of size 1


@_rule(aten.unsqueeze.default)
def _unsqueeze(self: TensorSpec, dim: int) -> TensorSpec:
    axis = _axis(dim, len(self.sizes) + 1)
    return TensorSpec(self.dtype, (*self.sizes[:axis], 1, *self.sizes[axis:]))


@_rule(aten.squeeze.dim)
def _squeeze(self: TensorSpec, dim: int) -> TensorSpec | None:
    return _squeeze_dims(self, [dim])


@_rule(aten.squeeze.dims)
def _squeeze_dims(self: TensorSpec, dim: Sequence[int]) -> TensorSpec | None:
    axes = {_axis(d, len(self.sizes)) for d in dim}
    if not self.sizes or any(self.sizes[axis] != 1 for axis in axes):
        return None
    return TensorSpec(self.dtype, _reduced(self.sizes, axes, False))


@_rule(aten.select.int)
def _select(self: TensorSpec, dim: int, index: SizeExpression) -> TensorSpec | None:
    axis = _axis(dim, len(self.sizes))
    return TensorSpec(self.dtype, _replaced(self.sizes, axis)) if _are_numbers((self.sizes[axis], index)) else None


@_rule(aten.index_select.default)
def _index_select(self: TensorSpec, dim: int, index: TensorSpec) -> TensorSpec | None:
    if not self.sizes:
        return None
    return TensorSpec(self.dtype, _replaced(self.sizes, _axis(dim, len(self.sizes)), *(index.sizes or (1,))))


@_rule(aten.gather.default)
def _gather(self: TensorSpec, dim: int, index: TensorSpec, *, sparse_grad: bool = False) -> TensorSpec | None:
    pairs = list(zip(self.sizes, index.sizes, strict=False))
    if len(self.sizes) != len(index.sizes) or not self.sizes:
        return None
    del pairs[_axis(dim, len(self.sizes))]
    return TensorSpec(self.dtype, index.sizes) if all(own == other for own, other in pairs) else None


@_rule(aten.slice.Tensor)
def _slice(self: TensorSpec, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> TensorSpec | None:
    axis = _axis(dim, len(self.sizes))
    size, start = self.sizes[axis], 0 if start is None else start
    if all(number is None or isinstance(number, int) for number in (size, start, end, step)):
        return TensorSpec(self.dtype, _replaced(self.sizes, axis, len(range(size)[start:end:step])))
    if (start, step) != (0, 1):
        return None
    if end is None or end == size or (isinstance(end, int) and end >= torch.iinfo(torch.int64).max):
        return self
    # the name, because torch has its own class Min besides sympy.Min
    is_least = isinstance(end, sympy.Basic) and end.func.__name__ == "Min" and size in end.args
    return TensorSpec(self.dtype, _replaced(self.sizes, axis, end)) if is_least else None


@_rule(aten.narrow.default)
def _narrow(self: TensorSpec, dim: int, start: Any, length: Any) -> TensorSpec | None:
    if not (_are_numbers((start, length)) and start >= 0):
        return None
    return _slice(self, dim, start, start + length)


@_rule(aten.diagonal.default)
def _diagonal(self: TensorSpec, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorSpec | None:
    first, second = (_axis(dim, len(self.sizes)) for dim in (dim1, dim2))
    m, n = self.sizes[first], self.sizes[second]
    if isinstance(m, int) and isinstance(n, int):
        count: SizeExpression = max(0, min(m + min(offset, 0), n - max(offset, 0)))
    elif m == n and offset == 0:
        count = m
    else:
        return None
    return TensorSpec(self.dtype, (*_reduced(self.sizes, {first, second}, False), count))


# ---------------------------------------------------------------- views, padding and concatenation


@_rule(aten.expand.default)
def _expand(self: TensorSpec, size: Sequence[SizeExpression], *, implicit: bool = False) -> TensorSpec | None:
    own = (*[1] * (len(size) - len(self.sizes)), *self.sizes)
    sizes = tuple(mine if asked == -1 else asked for mine, asked in zip(own, size, strict=True))
    fits = all(mine in (1, asked) for mine, asked in zip(own, sizes, strict=True))
    return TensorSpec(self.dtype, sizes) if fits else None


@_rule(aten.mT.default, aten.mH.default, aten.adjoint.default)
def _adjoint(self: TensorSpec) -> TensorSpec | None:
    return _transpose(self, -2, -1)


@_rule(aten.transpose.int)
def _transpose(self: TensorSpec, dim0: int, dim1: int) -> TensorSpec | None:
    if not self.sizes:
        return None
    sizes = list(self.sizes)
    sizes[dim0], sizes[dim1] = sizes[dim1], sizes[dim0]
    return TensorSpec(self.dtype, tuple(sizes))


@_rule(aten.permute.default)
def _permute(self: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    return TensorSpec(self.dtype, tuple(self.sizes[dim] for dim in dims))


@_rule(aten.reshape.default, aten.view.default, aten._unsafe_view.default)
def _reshape(self: TensorSpec, shape: Sequence[SizeExpression]) -> TensorSpec | None:
    total = math.prod(self.sizes)
    known = math.prod(size for size in shape if size != -1)
    if -1 not in shape:
        return TensorSpec(self.dtype, tuple(shape)) if known == total else None
    rest = sympy.sympify(total) / known
    if not rest.is_integer:
        return None
    rest = int(rest) if rest.is_Integer else rest
    return TensorSpec(self.dtype, tuple(rest if size == -1 else size for size in shape))


@_rule(aten.flatten.using_ints)
def _flatten(self: TensorSpec, start_dim: int = 0, end_dim: int = -1) -> TensorSpec | None:
    first, last = (_axis(dim, len(self.sizes)) for dim in (start_dim, end_dim))
    if first >= last:
        return None  # returns the tensor itself, except for a 0-d tensor
    return TensorSpec(
        self.dtype, (*self.sizes[:first], math.prod(self.sizes[first : last + 1]), *self.sizes[last + 1 :])
    )


@_rule(aten.pad.default, aten.constant_pad_nd.default)
def _pad(self: TensorSpec, pad: Sequence[SizeExpression], *args: Any) -> TensorSpec | None:
    sizes = list(self.sizes)
    for axis, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        if (before, after) != (0, 0):
            if not _are_numbers((sizes[-axis], before, after)):
                return None
            sizes[-axis] += before + after
    return TensorSpec(self.dtype, tuple(sizes))


@_rule(aten.stack.default)
def _stack(tensors: Sequence[TensorSpec], dim: int = 0) -> Sizes | None:
    sizes = tensors[0].sizes
    if any(tensor.sizes != sizes for tensor in tensors):
        return None
    axis = _axis(dim, len(sizes) + 1)
    return (*sizes[:axis], len(tensors), *sizes[axis:])


@_rule(aten.cat.default)
def _cat(tensors: Sequence[TensorSpec], dim: int = 0) -> Sizes | None:
    axis = _axis(dim, len(tensors[0].sizes))
    if len({_replaced(tensor.sizes, axis) for tensor in tensors}) > 1 or not tensors[0].sizes:
        return None
    parts = [tensor.sizes[axis] for tensor in tensors]
    return _replaced(tensors[0].sizes, axis, sum(parts))


# ---------------------------------------------------------------- reductions and products


@_rule(aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default)
def _over_axes(self: TensorSpec, dim: Sequence[int] | None = None, keepdim: bool = False, **options: Any) -> Sizes:
    axes = {_axis(d, len(self.sizes)) for d in dim} if dim else set(range(len(self.sizes)))
    return _reduced(self.sizes, axes, keepdim)


@_rule(aten.prod.dim_int, aten.any.dim, aten.all.dim, aten.argmax.default, aten.argmin.default)
def _over_axis(self: TensorSpec, dim: int | None = None, keepdim: bool = False, **options: Any) -> Sizes:
    return _over_axes(self, None if dim is None else [dim], keepdim)


@_rule(aten.linalg_vector_norm.default)
def _norm(
    self: TensorSpec, ord: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, **options: Any
) -> Sizes:
    return _over_axes(self, dim, keepdim)


@_rule(aten.sum.default, aten.any.default, aten.all.default, aten.max.default, aten.min.default)
def _over_all(self: TensorSpec, **options: Any) -> Sizes:
    return ()


@_rule(aten.matmul.default, aten.mm.default, aten.bmm.default)
def _product(self: TensorSpec, other: TensorSpec) -> TensorSpec | None:
    left, right = self.sizes, other.sizes
    if min(len(left), len(right)) < 2 or left[-1] != right[-2] or self.dtype != other.dtype:
        return None
    batch = broadcast_shapes(left[:-2], right[:-2])
    return None if batch is None else TensorSpec(self.dtype, (*batch, left[-2], right[-1]))
