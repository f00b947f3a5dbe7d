"""Fast construction of fake tensors from a dtype and sizes, without torch's dispatcher."""

from __future__ import annotations

import functools
import operator
import weakref
from typing import Any, NamedTuple, cast

import sympy
import torch
from torch import Tensor

from fx_onnx.sizes.symbolic_sizes import SizeExpression, size_of
from fx_onnx.torch_internals.torch_private import FakeTensor, FakeTensorMode, unset_fake_temporarily

Sizes = tuple[SizeExpression, ...]


class TensorSpec(NamedTuple):
    """Dtype and sizes of a tensor whose elements are contiguous in memory."""

    dtype: torch.dtype
    sizes: Sizes


class FakeTensorFactory:
    """Makes the fake tensors of a mode. Tensors of one spec share a storage, because they have no elements."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = weakref.ref(mode)  # the mode keeps its factory alive, so the factory must not keep the mode alive
        self._elements: dict[TensorSpec, Tensor] = {}
        self._numbers: dict[sympy.Expr, torch.SymInt] = {}

    @classmethod
    def of(cls, mode: FakeTensorMode) -> FakeTensorFactory:
        """Returns the factory of a mode, which all traces under the mode share."""
        factory = _FACTORIES.get(mode)
        if factory is None:
            factory = _FACTORIES[mode] = cls(mode)
        return factory

    def size(self, number: int | torch.SymInt) -> SizeExpression:
        """Converts a number to a ``SizeExpression``, and remembers the number so that ``make`` can use the size."""
        size = size_of(number)
        if not isinstance(size, int):
            self._numbers.setdefault(size, number)  # type: ignore[arg-type]  # a plain number is a plain size
        return size

    def spec(self, value: Tensor) -> TensorSpec:
        """Returns the spec of a tensor, and remembers its sizes so that ``make`` can use them."""
        return TensorSpec(value.dtype, tuple(map(self.size, value.shape)))

    def number(self, size: SizeExpression) -> int | torch.SymInt | None:
        """Returns torch's number for a size or for a sum or product of sizes; None if an unknown symbol is in it."""
        if isinstance(size, int) or size in self._numbers:
            return size if isinstance(size, int) else self._numbers[size]
        if size.is_Integer:
            return int(size)
        parts: list[Any] = list(map(self.number, size.args))
        if not (size.is_Add or size.is_Mul) or None in parts:
            return None
        self._numbers[size] = functools.reduce(operator.add if size.is_Add else operator.mul, parts)
        return self._numbers[size]

    def like(self, tensor: Tensor, dtype: torch.dtype | None = None, *more: int) -> Tensor:
        """Returns a new tensor with the sizes of another tensor, followed by the sizes ``more``."""
        spec = self.spec(tensor)
        made = self.make(TensorSpec(dtype or spec.dtype, (*spec.sizes, *more)), tensor.device)
        return cast(Tensor, made)  # not None: the sizes of the other tensor are known

    def make(self, spec: TensorSpec, device: torch.device) -> Tensor | None:
        """Returns a new tensor; None if no number is known for one of the sizes."""
        element = self._elements.get(spec)
        if element is None:
            shape: list[Any] = list(map(self.number, spec.sizes))
            if None in shape:
                return None
            with unset_fake_temporarily():
                element = self._elements[spec] = torch.empty(shape, dtype=spec.dtype, device="meta")
        return FakeTensor(self._mode(), element, device)


_FACTORIES: weakref.WeakKeyDictionary[FakeTensorMode, FakeTensorFactory] = weakref.WeakKeyDictionary()
