"""The dynamic sizes of the inputs of a captured program: names, requested ranges, and arguments of other sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram

from fx_onnx.capture.dynamic_dims import (
    CapturedInput,
    captured_inputs,
    defined_sizes,
    dim_labels,
    dim_names,
    dims_and_sizes,
    has_dim,
    integer_inputs,
)
from fx_onnx.capture.proof.size_condition import WRITES, Condition, Sizes, all_hold
from fx_onnx.requests.request import Request
from fx_onnx.sizes.size_text import sizes_in_words
from fx_onnx.sizes.trial_sizes import SIZES, arguments_of_shapes, resized_empty
from fx_onnx.torch_internals.guard_private import is_from_file
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["MANY", "SMALL", "InputSizes"]

MANY = 6  # the number of dims from which on the sizes of one dim change at a time
SMALL = 64  # up to where each size of a dim is tried alone
_SMALL_OF_ALL = 5  # and those of all dims together


class InputSizes:
    """The dynamic sizes of the inputs of a captured program."""

    def __init__(self, request: Request, program: ExportedProgram) -> None:
        """Takes what was captured and the program."""
        self._request, self._program = request, program
        self.inputs: list[CapturedInput] = captured_inputs(request, program)
        self._numbers = integer_inputs(program)
        self.names: dict[sympy.Symbol, str] = {**dict(self._numbers.values()), **dim_names(self.inputs)}
        """The label of the symbol of each dynamic dim, and of each input that is an integer."""
        self.labels = {str(symbol): name for symbol, name in {**dim_labels(self.inputs), **self.names}.items()}
        """The labels of all symbols of the inputs, by the names of the symbols."""
        self.defined: dict[sympy.Symbol, Any] = defined_sizes(self.inputs)
        """The sizes that the caller defines by others."""
        self.shape_env = next((tensor.shape_env for tensor in self.inputs if tensor.shape_env is not None), None)
        self.larger: Sizes = {}
        """The example's sizes, but at least 2 where the guards of the capture allow it; see ``enlarge``."""

    def enlarge(self, guards: Sequence[Condition]) -> None:
        """Makes each size of the example that is 0 or 1 a 2, where the guards hold then."""
        self.larger = dict(self.example)
        for symbol in [symbol for symbol, size in self.example.items() if size < 2]:
            sizes = {**self.larger, symbol: 2}
            if all(guard.holds(sizes) for guard in guards if symbol in guard.symbols):
                self.larger = sizes

    @cached_property
    def example(self) -> dict[sympy.Symbol, int]:
        """The size of each symbol in the user's example; a dim may be a multiple of a symbol."""
        leaves = pytree.tree_leaves((self._request.args, self._request.kwargs))
        scalars = {symbol: leaves[index] for index, (symbol, _) in self._numbers.items()}
        pairs = dims_and_sizes(self._request, self.inputs)
        sizes = scalars | {dim: size for dim, size in pairs if isinstance(dim, sympy.Symbol)}
        for dim, size in pairs:
            symbols: set[sympy.Symbol] = getattr(dim, "free_symbols", set())
            if len(symbols) == 1 and not symbols <= sizes.keys():
                sizes[next(iter(symbols))] = int(sympy.solve(dim - size)[0])
        return sizes

    @cached_property
    def _ranges(self) -> dict[str, tuple[int, int | None]]:
        """The (min, max) of Dim objects by name; the max is None if there is none."""
        leaves = pytree.tree_leaves(self._request.dynamic_shapes, is_leaf=lambda leaf: isinstance(leaf, Dim))
        dims = [dim for dim in leaves if isinstance(dim, Dim) and hasattr(dim, "min")]
        return {dim.__name__: (dim.min, dim.max if isinstance(dim.max, int) else None) for dim in dims}

    def declared(self, symbol: sympy.Symbol) -> tuple[int, int | None]:
        """Returns the smallest and the largest size that the user declares for a dim, here and in a given program."""
        (low, high), (least, most) = self._ranges.get(self.names.get(symbol, ""), (0, None)), self._captured(symbol)
        return max(low, least), min((end for end in (high, most) if end is not None), default=None)

    def _captured(self, symbol: sympy.Symbol) -> tuple[int, int | None]:
        """Returns the smallest and the largest size for which the user captured a program."""
        span = self._program.range_constraints.get(symbol)
        is_given = span is not None and isinstance(self._request.model, ExportedProgram)
        if not is_given or not (is_from_file(self.shape_env) or has_dim(self.inputs, symbol)):
            return 0, None  # torch narrows the range of Dim.AUTO itself
        return int(span.lower), int(span.upper) if span.upper.is_Integer else None

    def narrowed(self) -> Iterator[str]:
        """Yields a sentence for each Dim that allows more sizes than those for which the user captured the program."""
        for symbol, name in self.names.items():
            low, high = self._ranges.get(name, (0, None))
            first, last = self._captured(symbol)
            if 0 < low < first or (high is not None and last is not None and high > last):
                captured, asked = (sizes_in_words(*span, least=1) for span in ((first, last), (low, high)))
                yield (
                    f"The exported model takes for {name!r} the sizes {captured}, for which the ExportedProgram was "
                    f"captured, and not {asked}; capture it with this range."
                )

    def requested(self, symbol: sympy.Symbol, sizes: Sequence[int]) -> list[int]:
        """Returns those of the given sizes, and of the example's, that the user requests for a dim."""
        low, high = self.declared(symbol)
        return sorted({n for n in (*sizes, self.larger[symbol]) if n >= low and (high is None or n <= high)})

    def excluded(self, condition: Condition, *more: int) -> list[Sizes]:
        """Returns the requested sizes for which a condition is false, among them ``more``."""
        symbols = condition.symbols
        tried = (*more, *SIZES[min(len(symbols), len(SIZES)) - 1])
        if condition.raises and condition.guard is None:  # it holds for the values of indices, of any size
            tried = (1, *tried)
        sizes = [self.requested(symbol, tried) for symbol in symbols]
        if condition.cause == WRITES:  # nothing is written where a tensor is empty
            sizes = [[size for size in requested if size] for requested in sizes]
        points: Any = itertools.product(*sizes)
        if len(symbols) >= MANY:
            given = [self.larger[symbol] for symbol in symbols]
            points = [(*given[:n], size, *given[n + 1 :]) for n, choices in enumerate(sizes) for size in choices]
        return [dict(zip(symbols, point, strict=True)) for point in points if not condition.test(*point)]

    def completed(self, point: Sizes, conditions: Sequence[Condition], *more: int) -> Iterator[Sizes]:
        """Yields sizes of all symbols; those that are not given follow the conditions that relate them to the given.

        They are tried with ``more`` sizes too.
        """
        yield {**self.larger, **point}
        related = [condition for condition in conditions if not point.keys().isdisjoint(condition.symbols)]
        others = list(dict.fromkeys(s for condition in related for s in condition.symbols if s not in point))
        if 0 < len(others) < MANY:
            sizes = [self.requested(symbol, (*SIZES[min(len(others), len(SIZES) - 1)], *more)) for symbol in others]
            for values in itertools.product(*sizes):
                yield {**self.larger, **point, **dict(zip(others, values, strict=True))}

    def small(self) -> list[Sizes]:
        """Returns small sizes from 1 on: of each dim alone, and of all dims together if there are few."""
        symbols = [symbol for symbol in self.names if symbol in self.larger]
        points: list[Sizes] = [
            {**self.larger, symbol: n} for symbol in symbols for n in self.requested(symbol, range(1, SMALL)) if n
        ]
        if 1 < len(symbols) <= 3:
            sizes = [[n for n in self.requested(symbol, range(1, _SMALL_OF_ALL)) if n] for symbol in symbols]
            points += [dict(zip(symbols, point, strict=True)) for point in itertools.product(*sizes)]
        return points

    def at(self, symbol: sympy.Symbol, size: int, conditions: Sequence[Condition]) -> Sizes | None:
        """Returns sizes in which a dim has a size, at which conditions hold; None if it is not requested."""
        points = self.completed({symbol: size}, conditions, 1) if self.declared(symbol)[0] <= size else ()
        return next((point for point in points if all_hold(conditions, point)), None)

    def arguments(
        self, sizes: Mapping[Any, int], made: Callable[[torch.Tensor, Sequence[int]], torch.Tensor]
    ) -> tuple[Any, Any]:
        """Returns the example's arguments with tensors of given sizes.

        Args:
            sizes: The size of each symbol, and of single axes, by the number of an input and the axis.
            made: Makes a tensor from one of the example and a shape.
        """
        tensors = iter(self._shapes(sizes))
        leaves, spec = pytree.tree_flatten((self._request.args, self._request.kwargs))
        scalars = {index: [sizes[symbol]] for index, (symbol, _) in self._numbers.items()}
        shapes = (
            next(tensors) if isinstance(leaf, torch.Tensor) else scalars.get(n, []) for n, leaf in enumerate(leaves)
        )
        return arguments_of_shapes(leaves, spec, shapes, made)

    def empty_arguments(self, sizes: Mapping[Any, int] | None = None) -> tuple[Any, Any]:
        """Returns arguments without values, by default of the example's sizes, but at least 2 where guards allow it."""
        return self.arguments(self.larger if sizes is None else sizes, resized_empty)

    def elements(self, sizes: Mapping[Any, int]) -> int:
        """Returns the number of elements of all inputs at sizes."""
        return sum(map(math.prod, self._shapes(sizes)))

    def _shapes(self, sizes: Mapping[Any, int]) -> list[list[int]]:
        return [
            [sizes.get((number, axis)) or self.size(tensor.dim(axis), sizes) for axis in range(tensor.value.ndim)]
            for number, tensor in enumerate(self.inputs)
        ]

    def size(self, dim: Any, sizes: Mapping[Any, int] | None = None) -> int:
        """Returns the size of a dim, by default that of the example but at least 2 where the guards allow it."""
        known = self.larger if sizes is None else sizes
        return dim if isinstance(dim, int) else int(dim.xreplace(self.defined).xreplace(known))
