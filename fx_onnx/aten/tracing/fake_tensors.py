"""Fake tensors made from a dtype and sizes, without torch's way through all of its layers."""

from __future__ import annotations

import functools
import operator
import weakref
from typing import Any, NamedTuple, TypeAlias, cast

import sympy
import torch
from torch import Tensor

from fx_onnx.core import symbolic_sizes
from fx_onnx.core.torch_private import FakeTensor, FakeTensorMode, unset_fake_temporarily

Size: TypeAlias = "int | sympy.Expr"
"""A size as what equal sizes have in common: a number, or the expression of a symbolic one."""

Sizes = tuple[Size, ...]


class TensorSpec(NamedTuple):
    """Dtype and sizes of a tensor, which lies in memory row by row."""

    dtype: torch.dtype
    sizes: Sizes


def size_of(number: int | torch.SymInt) -> Size:
    """The size that a plain or a symbolic number says."""
    if isinstance(number, int):
        return number
    found = symbolic_sizes.expression(number)
    return int(found) if found.is_Integer else found


class FakeTensorFactory:
    """Makes the fake tensors of a mode. Those of one form are aliases of each other, since they hold nothing."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = weakref.ref(mode)  # which has these, and not the other way round
        self._elements: dict[TensorSpec, Tensor] = {}
        self._numbers: dict[sympy.Expr, torch.SymInt] = {}

    @classmethod
    def of(cls, mode: FakeTensorMode) -> FakeTensorFactory:
        """Those of a mode, which its captures and traces share."""
        found = _FAKES.get(mode)
        if found is None:
            found = _FAKES[mode] = cls(mode)
        return found

    def size(self, number: int | torch.SymInt) -> Size:
        """The size that a number says, of which tensors can be made from now on."""
        size = size_of(number)
        if not isinstance(size, int):
            self._numbers.setdefault(size, number)  # type: ignore[arg-type]  # a plain number is a plain size
        return size

    def form(self, value: Tensor) -> TensorSpec:
        """The form of a tensor."""
        return TensorSpec(value.dtype, tuple(map(self.size, value.shape)))

    def number(self, size: Size) -> int | torch.SymInt | None:
        """A size as torch knows it, sums and products of sizes too; None of what no tensor had so far."""
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
        """A new tensor of the sizes of another, and ``more`` after them."""
        form = self.form(tensor)
        made = self.make(TensorSpec(dtype or form.dtype, (*form.sizes, *more)), tensor.device)
        return cast(Tensor, made)  # all of its sizes are known: from the other tensor

    def make(self, form: TensorSpec, device: torch.device) -> Tensor | None:
        """A new tensor; None if torch does not know all of its sizes."""
        element = self._elements.get(form)
        if element is None:
            shape: list[Any] = list(map(self.number, form.sizes))
            if None in shape:
                return None
            with unset_fake_temporarily():
                element = self._elements[form] = torch.empty(shape, dtype=form.dtype, device="meta")
        return FakeTensor(self._mode(), element, device)


_FAKES: weakref.WeakKeyDictionary[FakeTensorMode, FakeTensorFactory] = weakref.WeakKeyDictionary()
