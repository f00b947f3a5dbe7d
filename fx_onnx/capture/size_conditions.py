"""Turns the guards of a capture into conditions on the user's dims.

A guard of torch.export holds for the example. Where it is false, the captured program is not the model: either the
model raises an exception there, and the condition is a *bound*, or it computes something else, and the condition is a
*finding*. A guard tells that it is a bound if torch checks it. All other guards are tried: the module and the program
run on tensors without values, of sizes for which the guard is false. If both compute the same there, the guard is no
condition.

All guards count, except those that hold for every requested size, or wherever the other conditions hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram

from fx_onnx.capture.dynamic_dims import (
    CapturedInput,
    captured_inputs,
    defined_sizes,
    dim_names,
    dims_and_sizes,
    has_dim,
    integer_inputs,
)
from fx_onnx.capture.request import Request
from fx_onnx.capture.size_guards import (
    BRANCH,
    SIZES,
    Condition,
    Sizes,
    changed_questions,
    excluded_size,
    one_is_larger,
    recorded_conditions,
    weaker_conditions,
)
from fx_onnx.capture.value_numbers import FakeRuns, Outcome
from fx_onnx.sizes.dim_table import SizeCondition
from fx_onnx.sizes.size_text import expression_text, simple_condition, without_subtraction
from fx_onnx.sizes.trial_sizes import condition_of, resized, resized_empty, with_other_values
from fx_onnx.torch_internals.guard_private import (
    assume_sizes_from_2,
    check_conditions,
    forget_guard,
    guard_origin,
)
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["RAISES", "SizeFacts"]

_MANY = 6  # the number of dims from which on the sizes of one dim change at a time
_TRIES = 4  # how many excluded sizes are tried for a condition
_NEAREST = 12  # how many of those next to the example are tried where the code has a number of the example
_LARGEST_LEAST = 64  # up to where the smallest size of a dim is looked for
_LARGEST_TRY = 4096  # the largest size that is tried, because a forward may loop over it
RAISES = "raises an exception for other sizes"
_LONG = 30  # the length of a condition from which on a simpler form replaces the expression of a frozen value
_WRONG = {Outcome.DIFFERENT, Outcome.DEPENDS}
_OPERATORS = (" / ", "//", "%", "max(", "min(", "*", " - ")


class SizeFacts:
    """The sizes for which a captured program is right."""

    def __init__(self, request: Request, program: ExportedProgram, runs: FakeRuns) -> None:
        """Takes what was captured, the program, and what runs both on fake tensors."""
        self._request, self._program, self._runs = request, program, runs
        self._outcomes: dict[tuple[Any, ...], Outcome] = {}
        self._agreeing: set[bool] = set()  # whether the module and the program agree on the meta device, and on others

    @cached_property
    def inputs(self) -> list[CapturedInput]:
        """The tensors among the inputs of the graph."""
        return captured_inputs(self._request, self._program)

    @cached_property
    def names(self) -> dict[sympy.Symbol, str]:
        """The label of the symbol of each dynamic dim, and of each input that is an integer."""
        return {**dict(integer_inputs(self._program).values()), **dim_names(self.inputs)}

    @cached_property
    def labels(self) -> dict[str, str]:
        """The labels by the names of the symbols."""
        return {str(symbol): name for symbol, name in self.names.items()}

    @cached_property
    def conditions(self) -> list[Condition]:
        """The conditions on which the program relies, the bounds first.

        The guards are decided in the order of the forward: an exception that torch raises for some sizes tells nothing
        about the sizes for which the program is another one already, nor does what it checks in a dropped branch.
        """
        kept: dict[Condition, list[Sizes]] = {}
        dropped: list[Condition] = []
        for condition in self._guards:
            known = [each for each in kept if set(each.symbols) <= set(condition.symbols)]
            points = [point for point in self._excluded(condition) if all(each.holds(point) for each in known)]
            if condition.raises and condition.is_in_branch(dropped, points):
                condition = replace(condition, raises=False)
            decided = list(self._decided(condition, points, list(kept))) if points else []
            kept.update(dict.fromkeys(decided, points))
            dropped += [condition] if points and not decided else []
        for condition in sorted(kept, key=lambda each: len(kept[each])):
            others = [each for each in kept if each is not condition and each.kind == condition.kind]
            others = [each for each in others if set(each.symbols) <= set(condition.symbols)]
            if all(any(not each.holds(point) for each in others) for point in kept[condition]):
                del kept[condition]
        found = [*sorted(kept, key=lambda each: each.kind), *self._small_sizes(list(kept))]
        found += self._joint_ones(found)
        if self._shape_env is not None and not isinstance(self._request.model, ExportedProgram):
            ranges = {symbol: self.declared(symbol) for symbol in self.names}
            check_conditions(self._program, self._shape_env, [each.expression for each in found], ranges)
            assume_sizes_from_2(self._shape_env)
        return found

    def described(self) -> list[SizeCondition]:
        """Returns the conditions over the names of the dims."""
        names = [tuple(self.names[symbol] for symbol in each.symbols) for each in self.conditions]
        causes = [each.cause if each.kind == "finding" else RAISES for each in self.conditions]
        return [
            SizeCondition(self.text(each), each.kind, dims, cause, each.place, each.test)
            for each, dims, cause in zip(self.conditions, names, causes, strict=True)
        ]

    def exclude_example(self) -> bool:
        """Returns whether the program is wrong for the sizes of the user's example."""
        fixed = any(isinstance(dim, int) and dim != size for dim, size in dims_and_sizes(self._request, self.inputs))
        return fixed or not all(each.holds(self._example) for each in self.conditions)

    def fixes(self, number: int, axis: int) -> bool:
        """Returns whether the program needs one size of an axis of an input."""
        dim = self.inputs[number].dim(axis)
        equations = (each for each in self.conditions if isinstance(each.expression, sympy.Eq))
        return isinstance(dim, int) or any(each.symbols == (dim,) for each in equations)

    def size(self, dim: Any) -> int:
        """Returns a size of the example, but at least 2 where the guards allow it."""
        return self._size(dim, self._larger)

    def raises_for(self, sizes: Mapping[tuple[int, int], int]) -> bool:
        """Returns whether the module raises an exception for other sizes, by the number of an input and its axis."""
        return self._outcome({**self._larger, **sizes}) is Outcome.RAISES

    def given(self) -> tuple[Any, Any]:
        """Returns new tensors without values for the example's arguments."""
        return self._given(self._larger, resized_empty)

    @property
    def truncated(self) -> bool:
        """Whether the model itself calls ``int`` with an expression of sizes, as in ``int(0.7 * n)``."""
        origins = map(guard_origin, getattr(self._shape_env, "guards", ()))
        return any(each.truncates and each.call is None for each in origins)

    # --- guards -------------------------------------------------------------------------------------------------------

    @cached_property
    def _guards(self) -> list[Condition]:
        """The conditions on the sizes of the inputs, as torch recorded them."""
        found = recorded_conditions(self._program, self._shape_env, self._defined)
        return [each for each in found if each.symbols and self.names.keys() >= set(each.symbols)]

    @cached_property
    def _defined(self) -> dict[sympy.Symbol, Any]:
        """The sizes that the caller defines by others."""
        return defined_sizes(self.inputs)

    @cached_property
    def _shape_env(self) -> Any:
        return next((each.shape_env for each in self.inputs if each.shape_env is not None), None)

    def _excluded(self, condition: Condition) -> list[Sizes]:
        """Returns the requested sizes for which a condition is false."""
        symbols = condition.symbols
        tried = SIZES[min(len(symbols), len(SIZES)) - 1]
        if condition.raises and condition.guard is None:  # it holds for the values of indices, of any size
            tried = (1, *tried)
        sizes = [self._requested(symbol, tried) for symbol in symbols]
        points: Any = itertools.product(*sizes)
        if len(symbols) >= _MANY:
            given = [self._larger[symbol] for symbol in symbols]
            points = [(*given[:n], size, *given[n + 1 :]) for n, each in enumerate(sizes) for size in each]
        return [dict(zip(symbols, point, strict=True)) for point in points if not condition.test(*point)]

    def _requested(self, symbol: sympy.Symbol, sizes: Sequence[int]) -> list[int]:
        """Returns those of the given sizes, and of the example's, that the user requests for a dim."""
        low, high = self.declared(symbol)
        return sorted({n for n in (*sizes, self._larger[symbol]) if n >= low and (high is None or n <= high)})

    def declared(self, symbol: sympy.Symbol) -> tuple[int, int | None]:
        """Returns the smallest and the largest size that the user declares for a dim; a program has its own."""
        if isinstance(self._request.model, ExportedProgram):
            span = self._program.range_constraints.get(symbol)
            if span is None or not has_dim(self.inputs, symbol):  # torch narrows the range of Dim.AUTO itself
                return 0, None
            return int(span.lower), int(span.upper) if span.upper.is_Integer else None
        low, high = self._ranges.get(self.names.get(symbol, ""), (None, None))
        return low or 0, high

    @cached_property
    def _ranges(self) -> dict[str, tuple[int, int | None]]:
        """The (min, max) of Dim objects by name."""
        leaves = pytree.tree_leaves(self._request.dynamic_shapes, is_leaf=lambda leaf: isinstance(leaf, Dim))
        return {dim.__name__: (dim.min, dim.max) for dim in leaves if isinstance(dim, Dim) and hasattr(dim, "min")}

    @cached_property
    def _example(self) -> dict[sympy.Symbol, int]:
        """The size of each symbol in the user's example; a dim may be a multiple of a symbol."""
        leaves = pytree.tree_leaves((self._request.args, self._request.kwargs))
        scalars = {symbol: leaves[place] for place, (symbol, _) in integer_inputs(self._program).items()}
        pairs = dims_and_sizes(self._request, self.inputs)
        found = scalars | {dim: size for dim, size in pairs if isinstance(dim, sympy.Symbol)}
        for dim, size in pairs:
            symbols: set[sympy.Symbol] = getattr(dim, "free_symbols", set())
            if len(symbols) == 1 and not symbols <= found.keys():
                found[next(iter(symbols))] = int(sympy.solve(dim - size)[0])
        return found

    @cached_property
    def _larger(self) -> dict[sympy.Symbol, int]:
        """The example's sizes, but at least 2 where the guards allow it."""
        sizes = dict(self._example)
        for symbol in [each for each, size in sizes.items() if size < 2]:
            larger = {**sizes, symbol: 2}
            if all(each.holds(larger) for each in self._guards if symbol in each.symbols):
                sizes = larger
        return sizes

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _decided(self, condition: Condition, points: Sequence[Sizes], kept: Sequence[Condition]) -> Iterator[Condition]:
        """Yields a condition with its kind; nothing if the program is right where it is false.

        Args:
            condition: The condition.
            points: Sizes of its symbols for which it is false.
            kept: The conditions that are already known; the sizes that are tried fulfil them.
        """
        if condition.raises:
            yield from self._bounds(condition, points, kept)
            return
        tried = [(point, self._outcome(point)) for point in self._tries(points, kept)]
        if condition.converts and all(outcome is Outcome.EQUAL for _, outcome in tried):  # it may be used as `n % 3`
            tried = [(point, self._outcome(point)) for point in self._tries(points, kept, _NEAREST)]
        outcomes = {outcome for _, outcome in tried}
        if not outcomes.isdisjoint(_WRONG | {Outcome.UNKNOWN}) or not outcomes:
            yield replace(condition, is_certain=not outcomes.isdisjoint(_WRONG))
        elif Outcome.EQUAL in outcomes and Outcome.RAISES in outcomes:
            yield from self._weakened(condition, tried, kept)
        elif Outcome.RAISES in outcomes:
            is_bound = all(self._raises_with_ones(condition, point, kept) for point, _ in tried)
            yield replace(condition, kind="bound" if is_bound else "finding", is_certain=False)
        elif condition.guard is not None:
            forget_guard(self._shape_env, condition.guard, is_disproved=True)

    def _raises_with_ones(self, condition: Condition, point: Sizes, kept: Sequence[Condition]) -> bool:
        """Returns whether the module raises where the dims of a condition have these sizes, and all others are 1."""
        ones = {symbol: 1 for symbol in self._larger if self._may_be(symbol, 1, kept)}
        sizes = {**self._larger, **ones, **{symbol: point[symbol] for symbol in condition.symbols}}
        return not all(each.holds(sizes) for each in kept) or self._outcome(sizes) is Outcome.RAISES

    def _weakened(
        self, condition: Condition, tried: Sequence[tuple[Sizes, Outcome]], kept: Sequence[Condition]
    ) -> Iterator[Condition]:
        """Yields the bound of which a guard is a part: sizes compare so wherever the guard holds, and not else.

        The guard of ``x[:, -n:].contiguous()`` is that the slice is shorter than x. The program is right for the whole
        of x too, and the model raises where x is shorter than n. That of ``x.split(5)[1]`` is the number of pieces. A
        guard of another kind remains a finding, because the ONNX operators of a program may rely on it.
        """
        for weak in weaker_conditions(replace(condition, kind="bound")):
            excluded, between = self._excluded(weak), [each for each in self._excluded(condition) if weak.holds(each)]
            if (
                all(weak.holds(point) == (outcome is Outcome.EQUAL) for point, outcome in tried)
                and not any(map(condition.holds, excluded))
                and all(self._outcome(point) is Outcome.EQUAL for point in self._tries(between, kept, _NEAREST))
                and all(self._outcome(point) is Outcome.RAISES for point in self._tries(excluded, kept, _NEAREST))
            ):
                if condition.converts:
                    forget_guard(self._shape_env, condition.guard, is_disproved=True)
                yield from self._bounds(weak, excluded, kept)
                return
        yield replace(condition, is_certain=False)

    def _bounds(self, condition: Condition, points: Sequence[Sizes], kept: Sequence[Condition]) -> Iterator[Condition]:
        """Yields a condition that torch checks, and the size for which a broadcast is right all the same.

        Two sizes must be equal, but torch does not check whether one of them is 1 where it depends on a dynamic dim.
        """
        expression = condition.expression
        if isinstance(expression, sympy.Eq) and 1 in expression.args:  # a broadcast to a size, which the dim may have
            yield replace(condition, is_certain=False)
            return
        for point in self._tries(list(self._broadcasts(condition, points, kept)), kept):
            outcome, exception = self._outcome(point), sympy.Eq(condition.symbols[0], point[condition.symbols[0]])
            if outcome is not Outcome.RAISES and len(condition.symbols) > 1:
                yield replace(condition, is_certain=False)  # the sizes of the program may follow from the condition
                return
            if outcome not in (Outcome.RAISES, Outcome.EQUAL):
                yield replace(condition, expression=sympy.Not(exception), cause=BRANCH)
            if outcome is not Outcome.RAISES:
                expression = sympy.Or(expression, exception)
        yield replace(condition, expression=expression, kind="bound")

    def _broadcasts(self, condition: Condition, points: Sequence[Sizes], kept: Sequence[Condition]) -> Iterator[Sizes]:
        """Yields excluded sizes for which a side of a comparison is 1."""
        symbols, sides = condition.symbols, condition.expression.args
        if 0 in sides or not isinstance(condition.expression, (sympy.Eq, sympy.Ge)):
            return
        are_one = [condition_of(sympy.Eq(side, 1), symbols) for side in sides]
        given = {symbol: self._larger[symbol] for symbol in symbols}
        at_one = ({**given, symbol: 1} for symbol in symbols if self._may_be(symbol, 1, kept))
        excluded = (each for each in (*at_one, *points) if not condition.holds(each))
        small = (each for each in excluded if any(is_one(*each.values()) for is_one in are_one))
        yield from itertools.islice(small, 2)

    def _tries(self, points: Sequence[Sizes], kept: Sequence[Condition], nearest: int = 1) -> Iterator[Sizes]:
        """Yields the sizes to try: the closest ones to the example, the smallest ones, and others.

        The other dims have sizes that pass what torch checks, if there are such sizes: an exception then has no other
        cause.
        """

        def distance(point: Sizes) -> float:
            return sum(abs(size - self._larger[symbol]) for symbol, size in point.items())

        near = sorted((p for p in points if max(p.values()) <= _LARGEST_TRY), key=distance)
        smallest = min(near, key=lambda point: sum(point.values()), default={})
        chosen = near if len(near) <= _TRIES else [*near[:nearest], near[len(near) // 2], near[-1], smallest]
        checks = [each for each in self._guards if each.raises]
        for point in chosen:
            found = (each for each in self._completed(point, [*kept, *checks]) if all(c.holds(each) for c in kept))
            first = next(found, None)
            if first is not None:
                passing = (each for each in itertools.chain([first], found) if all(c.holds(each) for c in checks))
                yield next(passing, first)

    def _completed(self, point: Sizes, kept: Sequence[Condition]) -> Iterator[Sizes]:
        """Yields sizes of all symbols; those that are not given follow the conditions that relate them to the given."""
        yield {**self._larger, **point}
        related = {s for each in kept if not point.keys().isdisjoint(each.symbols) for s in each.symbols} - point.keys()
        if 0 < len(related) < _MANY:
            sizes = [self._requested(symbol, SIZES[min(len(related), len(SIZES) - 1)]) for symbol in related]
            for others in itertools.product(*sizes):
                yield {**self._larger, **point, **dict(zip(related, others, strict=True))}

    def _outcome(self, sizes: Sizes) -> Outcome:
        """Returns how the module and the program compare for sizes.

        They run on the meta device first, which is faster. A difference counts only if both agree where all guards
        hold, and an exception only if they agree somewhere; else the tensors of this device do not tell, of any size.
        """
        for on_meta in (True, False):
            if self._outcomes.get((on_meta, *self._larger.items()), Outcome.EQUAL) is not Outcome.EQUAL:
                continue
            outcome = self._compared(sizes, on_meta)
            if outcome is Outcome.RAISES and on_meta in self._agreeing:
                return outcome
            if outcome is Outcome.EQUAL or self._compared(self._larger, on_meta) is Outcome.EQUAL:
                return outcome
        return Outcome.UNKNOWN

    def _compared(self, sizes: Sizes, on_meta: bool) -> Outcome:
        key = (on_meta, *sizes.items())
        if key not in self._outcomes:
            self._outcomes[key] = self._runs.compare(lambda: self._given(sizes, resized_empty), on_meta)
            if self._outcomes[key] is Outcome.EQUAL:
                self._agreeing.add(on_meta)
        return self._outcomes[key]

    def _given(self, sizes: Sizes, made: Callable[[torch.Tensor, Sequence[int]], torch.Tensor]) -> tuple[Any, Any]:
        """Returns the example's arguments with tensors of the given sizes, made from a tensor and a shape."""
        shapes = iter(
            [sizes.get((number, axis)) or self._size(each.dim(axis), sizes) for axis in range(each.value.ndim)]
            for number, each in enumerate(self.inputs)
        )
        scalars = {place: sizes[symbol] for place, (symbol, _) in integer_inputs(self._program).items()}
        leaves, spec = pytree.tree_flatten((self._request.args, self._request.kwargs))
        new = [
            made(leaf, next(shapes)) if isinstance(leaf, torch.Tensor) else scalars.get(place, leaf)
            for place, leaf in enumerate(leaves)
        ]
        given: tuple[Any, Any] = pytree.tree_unflatten(new, spec)
        return given

    def _size(self, dim: Any, sizes: Sizes) -> int:
        return dim if isinstance(dim, int) else int(dim.xreplace(self._defined).xreplace(sizes))

    def _small_sizes(self, kept: Sequence[Condition]) -> Iterator[Condition]:
        """Yields conditions that exclude the sizes 0 and 1, where the program is not the model.

        torch takes a size for 2 or more without a guard, and most operators are right for 1 too. So all open dims are
        tried together with size 1, and each dim alone only if the program is another one there. Each dim is tried with
        size 0, where many models raise an exception early. What fake tensors leave open is decided by one eager run
        with all open sizes.
        """
        zeros, ones = (self._opened(size, kept) for size in (0, 1))
        if len(ones) > 1 and self._outcome({**self._larger, **dict.fromkeys(ones, 1)}) is Outcome.EQUAL:
            ones = {}
        findings: list[Condition] = []
        for size, found in ((1, ones), (0, zeros)):
            for symbol, condition in found.items():
                outcome = self._outcome({**self._larger, symbol: size})
                if outcome is Outcome.EQUAL:
                    continue
                condition = replace(condition, place=condition.place or self._question_line(symbol, size))
                excluding = replace(condition, expression=sympy.Ne(symbol, size, evaluate=False), kind="finding")
                if outcome is Outcome.DEPENDS:
                    yield excluding
                elif outcome is Outcome.DIFFERENT or (outcome is Outcome.UNKNOWN and condition.symbols):
                    findings.append(excluding)
                elif outcome is Outcome.RAISES and size == 1:
                    yield self._least(symbol, condition)
        sizes = {each.symbols[0]: each.expression.args[1] for each in reversed(findings)}
        agree = self._agree_eagerly(sizes) if findings else True
        is_certain = agree is False and len(findings) == 1  # other value numbers may be equal values
        yield from (replace(each, is_certain=is_certain) for each in findings if not agree)

    def _joint_ones(self, found: Sequence[Condition]) -> Iterator[Condition]:
        """Yields what the code asks of several dims, as ``n + m > 3``, if all sizes 1 make the program another one."""
        sizes = {**self._larger, **(ones := dict.fromkeys(self._opened(1, found), 1))}
        is_open = len(ones) > 1 and all(each.holds(sizes) for each in found)
        if is_open and self._outcome(sizes) is Outcome.DIFFERENT and not (agree := self._agree_eagerly(ones)):
            asked = [each for each in changed_questions(self._shape_env, self._larger, sizes) if each.is_own]
            yield from asked or ([one_is_larger(ones)] if agree is False else [])

    def _least(self, symbol: sympy.Symbol, condition: Condition) -> Condition:
        """Returns that a dim has the smallest size from 2 on for which the module raises no exception.

        It is a bound if the module raises one for size 1 whatever the other dims are: as they are, and as small.
        """
        largest = min(self._larger[symbol], _LARGEST_LEAST)
        outcomes = ((n, self._outcome({**self._larger, symbol: n})) for n in range(2, largest))
        least = next((n for n, outcome in outcomes if outcome is not Outcome.RAISES), largest)
        small = {each: min(2, size) for each, size in self._larger.items()} | {symbol: 1}
        kind: Any = "bound" if self._outcome(small) is Outcome.RAISES else condition.kind
        return replace(condition, expression=symbol >= least, cause=RAISES, is_certain=False, kind=kind)

    def _agree_eagerly(self, small: Mapping[sympy.Symbol, Any]) -> bool | None:
        """Returns whether both agree in an eager run in which the given sizes are small; None if it is not allowed."""
        sizes = {**self._example, **{symbol: int(size) for symbol, size in small.items()}}
        given = self._given(sizes, lambda leaf, shape: with_other_values(resized(leaf, shape)))
        return self._runs.agree_eagerly(*given)

    def _opened(self, size: int, kept: Sequence[Condition]) -> dict[sympy.Symbol, Condition]:
        """Returns the symbols that may have a size, each with a guard that is false there, if torch recorded one."""
        tried = [each for each in self.names if each in self._larger] if len(self.names) < _MANY else []
        found = {symbol: Condition(sympy.true) for symbol in tried if self._may_be(symbol, size, kept)}
        for guard in self._guards:
            if not guard.raises and (size or guard.is_own) and guard.holds(self._larger):
                for symbol in guard.symbols:
                    if not guard.holds({**self._larger, symbol: size}) and self._may_be(symbol, size, kept):
                        found[symbol] = guard
        return found

    def _question_line(self, symbol: sympy.Symbol, size: int) -> str:
        """Returns the line of a question whose answer is another one for a size, the model's own questions first."""
        found = changed_questions(self._shape_env, self._larger, {**self._larger, symbol: size})
        return next((each.place for each in found), "")

    def _may_be(self, symbol: sympy.Symbol, size: int, kept: Sequence[Condition]) -> bool:
        """Returns whether a dim may have a size: it is requested, and the known conditions hold."""
        sizes = {**self._larger, symbol: size}
        return self.declared(symbol)[0] <= size and all(each.holds(sizes) for each in kept)

    # --- words --------------------------------------------------------------------------------------------------------

    def text(self, condition: Condition) -> str:
        """Returns a condition as Python over the names of the dims; a frozen value keeps its expression."""
        expression, symbols = without_subtraction(condition.expression), condition.symbols
        text = expression_text(expression, self.labels)
        if len(symbols) == 2 and any(part in text for part in _OPERATORS):
            excluded = self._excluded(condition)
            equal = (each.expression for each in weaker_conditions(condition) if self._excluded(each) == excluded)
            return expression_text(next(equal, expression), self.labels)
        is_short = condition.converts and len(text) <= _LONG
        if len(symbols) > 1 or is_short or not any(part in text for part in _OPERATORS):
            return text
        only = excluded_size(condition)
        label = self.names[symbols[0]]
        return f"{label} != {only}" if only is not None else simple_condition(expression, symbols[0], label) or text

    def sentence(self, finding: Condition) -> str:
        """Returns a finding as one sentence."""
        only, verb = excluded_size(finding), "is" if finding.is_certain else "may be"
        where, cause = f"correct only where {self.text(finding)}", finding.cause
        if only is not None:
            where = f"wrong where {self.names[finding.symbols[0]]} == {only}"
            cause = finding.cause.replace("other sizes", "this size")
        place = f" {finding.place}" if finding.place else ""
        return f"The exported model {verb} {where}, because the code {cause}{place}."
