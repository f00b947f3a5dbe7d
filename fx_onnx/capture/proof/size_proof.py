"""Proves for which sizes a captured program is the model: it runs both at some sizes and compares.

A guard of torch.export holds for the example. Where it is false, the captured program is not the model: either the
model raises an exception there, and the condition is a *bound*, or it computes something else, and the condition is a
*finding*. The end of a table and a divisor of 0 are bounds without a run, and what torch checks is one if the module
raises an exception at the nearest size. All other candidates are tried: the module and the program run on tensors
without values, of sizes for which the candidate is false. If both compute the same there, the candidate is no
condition. Where the operators differ, one run with numbers decides.

All candidates count, except those that hold for every requested size, or wherever the other conditions hold.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any

import sympy
from torch.export import ExportedProgram

from fx_onnx.capture.dynamic_dims import dims_and_sizes
from fx_onnx.capture.proof.input_sizes import MANY, InputSizes
from fx_onnx.capture.proof.paired_runs import PROGRAM_FAILS, Outcome, PairedRuns
from fx_onnx.capture.proof.size_candidates import changed_questions, inner_conditions, recorded_conditions
from fx_onnx.capture.proof.size_condition import (
    BRANCH,
    EQUATES,
    RAISES,
    UNDEFINED,
    WRITES,
    Condition,
    Sizes,
    all_hold,
    one_is_larger,
    weaker_conditions,
)
from fx_onnx.capture.proof.size_runs import SizeRuns
from fx_onnx.requests.request import Request
from fx_onnx.sizes.trial_sizes import condition_of
from fx_onnx.torch_internals.guard_private import (
    assume_sizes_from_2,
    check_conditions,
    disproved_guards,
    empty_sizes,
    forget_guards,
    guard_origin,
)

__all__ = ["SizeProof"]

_TRIES = 4  # how many excluded sizes are tried for a condition
_NEAREST = 12  # how many of those next to the example are tried where the code has a number of the example
_LARGEST_LEAST = 64  # up to where the smallest size of a dim is looked for
_LARGEST_TRY = 4096  # the largest size that is tried, because a forward may loop over it
_INNER_TRIES = 6  # how often a size is tried for which sizes inside of the program are small
_OPEN = {Outcome.RENUMBERED, Outcome.UNKNOWN}
_WRONG = {Outcome.DIFFERENT, Outcome.DEPENDS}
_INDEX = "reads at an index that other sizes do not have"
Tried = Sequence[tuple[Sizes, Outcome]]


class SizeProof:
    """The sizes for which a captured program is right.

    Attributes:
        sizes: the dynamic sizes of the inputs.
    """

    def __init__(self, request: Request, program: ExportedProgram, runs: PairedRuns) -> None:
        """Takes what was captured, the program, and what runs both."""
        self._request, self._program = request, program
        self.sizes = InputSizes(request, program)
        recorded = recorded_conditions(program, self.sizes.shape_env, self.sizes.defined, runs.copies)
        self._guards = [guard for guard in recorded if guard.symbols and self.sizes.names.keys() >= {*guard.symbols}]
        self.sizes.enlarge(self._guards)
        self._runs = SizeRuns(self.sizes, runs)

    @cached_property
    def conditions(self) -> list[Condition]:
        """The conditions on which the program relies, the bounds first.

        The guards are decided in the order of the forward: an exception that torch raises for some sizes tells nothing
        about the sizes for which the program is another one already.
        """
        kept: dict[Condition, list[Sizes]] = {}
        for condition in self._guards:
            known = [other for other in kept if set(other.symbols) <= set(condition.symbols)]
            points = [p for p in self.sizes.excluded(condition) if all_hold(known, p)]
            if not (points or isinstance(condition.expression, sympy.Eq)):
                # torch need not check this for a size 1; equal sizes may be broadcast there.
                at_one = [p for p in self.sizes.excluded(condition, 1) if all_hold(known, p)]
                may_be_one = len(condition.symbols) > 1  # `_small_sizes` tries one dim alone
                if condition.raises:
                    may_be_one = self._runs.all_raise(self._tries(at_one, list(kept)))
                points = at_one if may_be_one else []
            if condition.raises and condition.is_checked:
                believed = {Outcome.RAISES} if condition.guard is None else {Outcome.RAISES, Outcome.UNKNOWN}
                first = next(self._tries(points, list(kept)), None)  # a dropped branch may also have it
                if first is not None and self._runs.outcome(first) not in believed:
                    condition = replace(
                        condition, raises=False, cause=_INDEX if condition.guard is None else condition.cause
                    )
            decided = list(self._decided(condition, points, list(kept))) if points else []
            kept.update(
                {each: points if each.symbols == condition.symbols else [dict(each.witness)] for each in decided}
            )
        for condition in sorted(kept, key=lambda condition: len(kept[condition])):
            others = [other for other in kept if other is not condition and other.kind == condition.kind]
            others = [other for other in others if set(other.symbols) <= set(condition.symbols)]
            alone = [point for point in kept[condition] if all_hold(others, point)]
            if not alone or self._is_explained(condition, alone, [other for other in kept if other is not condition]):
                del kept[condition]
        proven = list(kept)
        for further in (self._small_sizes, self._joint_ones, self._joint_others, self._inner_sizes):
            proven += list(further(proven))
        proven.sort(key=lambda condition: condition.kind)
        if (shape_env := self.sizes.shape_env) is not None:
            ranges = {symbol: self.sizes.declared(symbol) for symbol in self.sizes.names}
            if disproved := disproved_guards(shape_env):
                forget_guards(shape_env, disproved, ranges)
            if not isinstance(self._request.model, ExportedProgram):
                check_conditions(self._program, shape_env, [condition.expression for condition in proven], ranges)
                assume_sizes_from_2(shape_env)
        return proven

    @cached_property
    def raising_axes(self) -> set[tuple[int, int]]:
        """The requested axes that are static, for whose other sizes the module raises an exception.

        An axis of size 1 broadcasts to any size, so that nothing is tried.
        """
        static = {
            (number, axis): tensor.dim(axis)
            for number, tensor in enumerate(self.sizes.inputs)
            for axis in tensor.request.axes
            if isinstance(tensor.dim(axis), int) and tensor.dim(axis) != 1
        }
        tried = {1, 2, *self.sizes.larger.values()}
        return {
            axis
            for axis, size in static.items()
            if all(self._always_raises({axis: other}) for other in tried | {size + 1} if other != size)
        }

    @cached_property
    def other_line(self) -> str | None:
        """The line that computes something else than the program at the example's own sizes; None if there is none.

        A size is no int while torch traces: ``isinstance(size, int)`` and the text of a size have other answers. A run
        of the program that fails is no such answer, because torch has traced these sizes.
        """
        larger = self.sizes.larger
        is_defined = all(larger.get(symbol) == size.xreplace(larger) for symbol, size in self.sizes.defined.items())
        if not self.sizes.names or not is_defined or not all_hold(self.conditions, larger):
            return None
        ((_, outcome),) = self._runs.decided([larger])
        differs = outcome is Outcome.DIFFERENT and self._runs.seen(larger) != PROGRAM_FAILS
        return self._runs.other_line() if differs else None

    def exclude_example(self) -> bool:
        """Returns whether the program is wrong for the sizes of the user's example."""
        pairs = dims_and_sizes(self._request, self.sizes.inputs)
        fixed = any(isinstance(dim, int) and dim != size for dim, size in pairs)
        return fixed or not all_hold(self.conditions, self.sizes.example)

    def fixes(self, number: int, axis: int) -> bool:
        """Returns whether the program needs one size of an axis of an input."""
        dim = self.sizes.inputs[number].dim(axis)
        equations = (condition for condition in self.conditions if isinstance(condition.expression, sympy.Eq))
        return isinstance(dim, int) or any(equation.symbols == (dim,) for equation in equations)

    def raises_for(self, sizes: Mapping[tuple[int, int], int]) -> bool:
        """Returns whether the module raises an exception for other sizes, by the number of an input and its axis."""
        return self._runs.all_raise([{**self.sizes.larger, **sizes}])

    def other_sizes(self) -> Sizes:
        """Returns sizes at which the program is right and that differ from the example's, if there are some."""
        larger = self.sizes.larger
        points = [{**larger, symbol: n} for symbol in larger for n in (2 * larger[symbol] - 1, 2 * larger[symbol])]
        joint = [{symbol: factor * n for symbol, n in larger.items()} for factor in (2, 3)]
        return next((point for point in (*joint, *points) if all_hold(self.conditions, point)), larger)

    @property
    def truncated(self) -> bool:
        """Whether the model itself calls ``int`` with an expression of sizes, as in ``int(0.7 * n)``."""
        origins = map(guard_origin, getattr(self.sizes.shape_env, "guards", ()))
        return any(origin.truncates and origin.call is None for origin in origins)

    # --- candidates -------------------------------------------------------------------------------------------------

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
        tried: Tried = self._runs.decided(self._tries(points, kept))
        if condition.converts and all(outcome is Outcome.EQUAL for _, outcome in tried):  # it may be used as `n % 3`
            tried = self._runs.decided(self._tries(points, kept, _NEAREST))
        if all(outcome is Outcome.RAISES for _, outcome in tried):  # where another guard is false too, it may raise
            tried = self._runs.decided(self._tries(self._only_excluded(condition, points), kept)) or tried
        outcomes = {outcome for _, outcome in tried}
        if outcomes == {Outcome.RAISES} and isinstance(condition.expression, sympy.Eq):  # another size may broadcast
            tried = self._runs.decided(self._tries(self.sizes.excluded(condition, 1), kept, _NEAREST))
            outcomes |= {outcome for _, outcome in tried}
        if not outcomes.isdisjoint(_WRONG | _OPEN) or not outcomes:
            yield self._witnessed(condition, tried, _WRONG)
        elif Outcome.EQUAL in outcomes and Outcome.RAISES in outcomes:
            yield from self._weakened(condition, tried, kept)
        elif Outcome.RAISES in outcomes:
            ends = ({symbol: point[symbol] for symbol in condition.symbols} for point, _ in (tried[0], tried[-1]))
            is_bound = all(self._always_raises(point, kept) for point in ends)
            kind: Any = "bound" if is_bound else "finding"
            yield replace(self._witnessed(condition, tried, {Outcome.RAISES}), kind=kind, is_certain=False)
        elif condition.guard is not None:
            disproved_guards(self.sizes.shape_env).append(condition.guard)
            if (
                condition.is_own
                and isinstance(condition.expression, sympy.Ne)
                and condition.expression.args[1].is_number
            ):
                yield from self._joined(condition, tried[0][0])

    def _joined(self, condition: Condition, point: Sizes) -> Iterator[Condition]:
        """Yields that sizes are not equal to numbers at once: ``x.shape == (3, 5)`` compares 5 for 3 rows only."""
        others = [symbol for symbol in self.sizes.names if symbol in point and symbol not in condition.symbols]
        for number in self._runs.compared_sizes(point) if others else ():
            for other in (symbol for symbol in others if number in self.sizes.requested(symbol, [number])):
                tried = self._runs.decided([{**point, other: number}])
                if tried[0][1] in _WRONG:
                    joint = sympy.Or(condition.expression, sympy.Ne(other, number))
                    yield self._witnessed(replace(condition, expression=joint), tried, _WRONG)

    def _is_explained(self, finding: Condition, alone: Sequence[Sizes], others: Sequence[Condition]) -> bool:
        """Returns whether the program is right where a finding alone is false: it was seen where others are false too.

        Args:
            finding: The condition.
            alone: Sizes of its symbols for which it is false.
            others: The other conditions, of which later ones of the forward were not known when it was decided.
        """
        if finding.kind == "bound" or not finding.witness or all_hold(others, dict(finding.witness)):
            return False
        tried = self._runs.decided(self._tries(alone, others))
        is_right = bool(tried) and all(outcome is Outcome.EQUAL for _, outcome in tried)
        if is_right and finding.guard is not None:
            disproved_guards(self.sizes.shape_env).append(finding.guard)
        return is_right

    def _only_excluded(self, condition: Condition, points: Sequence[Sizes]) -> Sequence[Sizes]:
        """Returns those of the sizes for which a condition is false at which all other guards of its dims hold."""
        symbols = set(condition.symbols)
        others = [guard for guard in self._guards if guard is not condition and symbols.issuperset(guard.symbols)]
        return [point for point in points if all_hold(others, point)]

    def _witnessed(self, condition: Condition, tried: Tried, outcomes: Set[Outcome]) -> Condition:
        """Returns a condition with the first size that had one of the outcomes; without one it is not certain."""
        point = next((point for point, outcome in tried if outcome in outcomes), None)
        if point is None:
            return replace(condition, is_certain=False)
        return replace(condition, witness=tuple(point.items()), seen=self._runs.seen(point))

    def _always_raises(self, point: Mapping[Any, int], kept: Sequence[Condition] = ()) -> bool:
        """Returns whether the module raises an exception at sizes of some dims, whatever the others may be.

        The others are as in the example, then all 1 or 2, or one of the sizes that the exception names.
        """
        larger = self.sizes.larger
        if not self._runs.all_raise([{**larger, **point}]):
            return False
        named = map(int, re.findall(r"\b\d{1,4}\b", self._runs.seen({**larger, **point})))
        for size in dict.fromkeys((1, 2, *named)):
            others = {symbol: size for symbol in larger if self.sizes.at(symbol, size, kept) is not None}
            sizes = {**larger, **others, **point}
            if all_hold(kept, sizes) and not self._runs.all_raise([sizes]):
                return False
        return True

    def _weakened(self, condition: Condition, tried: Tried, kept: Sequence[Condition]) -> Iterator[Condition]:
        """Yields the bound of which a guard is a part: sizes compare so wherever the guard holds, and not else.

        The guard of ``x[:, -n:].contiguous()`` is that the slice is shorter than x. The program is right for the whole
        of x too, and the model raises where x is shorter than n. That of ``x.split(5)[1]`` is the number of pieces. A
        guard of another kind remains a finding, because the ONNX operators of a program may rely on it.
        """
        excluded = self.sizes.excluded
        for weak in weaker_conditions(replace(condition, kind="bound")):
            outside, between = excluded(weak), [point for point in excluded(condition) if weak.holds(point)]
            if (
                all(weak.holds(point) == (outcome is Outcome.EQUAL) for point, outcome in tried)
                and not any(condition.holds({**self.sizes.larger, **point}) for point in outside)
                and all(self._runs.outcome(point) is Outcome.EQUAL for point in self._tries(between, kept, _NEAREST))
                and self._runs.all_raise(self._tries(outside, kept, _NEAREST))
            ):
                if condition.converts:
                    disproved_guards(self.sizes.shape_env).append(condition.guard)
                yield from self._bounds(self._witnessed(weak, tried, {Outcome.RAISES}), outside, kept)
                return
        further = self._runs.decided(self._tries(excluded(condition), kept, _NEAREST))
        if condition.guard is not None and {outcome for _, outcome in further} <= {Outcome.EQUAL, Outcome.RAISES}:
            disproved_guards(self.sizes.shape_env).append(condition.guard)  # the model alone refuses other sizes
            return
        yield replace(self._witnessed(condition, tried, {Outcome.RAISES}), is_certain=False)

    def _bounds(self, condition: Condition, points: Sequence[Sizes], kept: Sequence[Condition]) -> Iterator[Condition]:
        """Yields a condition that torch checks, and the sizes for which a broadcast is right all the same.

        Two sizes must be equal, but torch does not check whether one of them is 1 where it depends on a dynamic dim.
        """
        expression = condition.expression
        if condition.cause == UNDEFINED:
            yield condition
            return
        if isinstance(expression, sympy.Eq) and 1 in expression.args:  # a broadcast to a size, which the dim may have
            yield replace(condition, is_certain=False)
            return
        for side in self._broadcasts(condition):
            exception, at_one = sympy.Eq(side, 1), condition_of(sympy.Eq(side, 1), condition.symbols)
            small = [point for point in self.sizes.excluded(condition, 1) if at_one(*point.values())]
            tried = self._runs.decided(self._tries(small, kept))
            outcomes = {outcome for _, outcome in tried}
            if len(condition.symbols) > 1 and outcomes - {Outcome.RAISES}:
                # The sizes of the program may follow from the condition.
                yield replace(condition, is_certain=False, cause=EQUATES)
                return
            if not outcomes <= {Outcome.RAISES, Outcome.EQUAL}:
                wrong = replace(condition, expression=sympy.Not(exception), cause=BRANCH)
                yield self._witnessed(wrong, tried, outcomes - {Outcome.RAISES, Outcome.EQUAL})
            if outcomes - {Outcome.RAISES}:
                expression = sympy.Or(expression, exception)
        yield replace(condition, expression=expression, kind="bound")

    def _broadcasts(self, condition: Condition) -> Sequence[Any]:
        """Returns the sides of a comparison of which one may be 1, if torch compares shapes there."""
        compares = isinstance(condition.expression, (sympy.Eq, sympy.Ge)) and 0 not in condition.expression.args
        compares = compares and (condition.guard is not None or condition.is_checked)
        return [side for side in condition.expression.args if not side.is_number] if compares else []

    def _tries(self, points: Sequence[Sizes], kept: Sequence[Condition], nearest: int = 1) -> Iterator[Sizes]:
        """Yields the sizes to try: the closest ones to the example, the smallest ones, and others.

        The other dims have sizes that pass what torch checks, if there are such sizes: an exception then has no other
        cause.
        """

        def distance(point: Sizes) -> float:
            return sum(abs(size - self.sizes.larger[symbol]) for symbol, size in point.items())

        near = sorted((p for p in points if max(p.values()) <= _LARGEST_TRY), key=distance)
        smallest = min(near, key=lambda point: sum(point.values()), default={})
        chosen = near if len(near) <= _TRIES else [*near[:nearest], near[len(near) // 2], near[-1], smallest]
        checks = [guard for guard in self._guards if guard.raises]
        for point in chosen:
            known = [*kept, *checks]
            allowed = (sizes for sizes in self.sizes.completed(point, known) if all_hold(kept, sizes))
            first = next(allowed, None)
            if first is not None:
                passing = (sizes for sizes in itertools.chain([first], allowed) if all_hold(checks, sizes))
                yield next(passing, first)

    # --- sizes that torch takes for usual ones ------------------------------------------------------------------------

    def _small_sizes(self, kept: Sequence[Condition]) -> Iterator[Condition]:
        """Yields conditions that exclude the sizes 0 and 1, where the program is not the model.

        torch takes a size for 2 or more without a guard, and most operators are right for 1 too. So all open dims are
        tried together with size 1, and a dim alone if the program is another one there, or if a question of the code
        has another answer for it alone. Each dim is tried with size 0, where many models raise an exception early.
        """
        larger, zeros, ones = self.sizes.larger, self._opened(0, kept), self._opened(1, kept)
        together = {**larger, **dict.fromkeys(ones, 1)}
        is_allowed = all_hold(kept, together)
        if len(ones) > 1 and is_allowed and self._runs.outcome(together) is Outcome.EQUAL:
            alone = {symbol: self._changed_questions(larger, {**larger, symbol: 1}) for symbol in ones}
            ones = {
                symbol: guard for symbol, guard in ones.items()
                if guard.cause == WRITES or any(question.holds(together) for question in alone[symbol])
            }  # fmt: skip
        findings: list[Condition] = []
        for symbol, size, condition in (*((s, 1, c) for s, c in ones.items()), *((s, 0, c) for s, c in zeros.items())):
            point = self.sizes.at(symbol, size, [*kept, *findings])
            if point is None or (self._runs.outcome(point) is Outcome.UNKNOWN and not condition.symbols):
                continue  # the code does not ask
            tried = self._runs.decided([point])
            ((_, outcome),) = tried
            lines = (question.line for question in self._changed_questions(larger, point))
            condition = replace(condition, line=condition.line or next(lines, ""))
            if outcome is Outcome.RAISES and point == {**larger, symbol: 1}:
                yield self._least(symbol, condition)
            elif outcome in _WRONG | {Outcome.RENUMBERED} or (outcome is Outcome.UNKNOWN and condition.symbols):
                excluding = replace(condition, expression=sympy.Ne(symbol, size, evaluate=False), kind="finding")
                findings.append(self._witnessed(excluding, tried, _WRONG))
        yield from findings

    def _joint_ones(self, kept: Sequence[Condition]) -> Iterator[Condition]:
        """Yields what the code asks of several dims, as ``n + m > 3``, if all sizes 1 make the program another one."""
        sizes = {**self.sizes.larger, **(ones := dict.fromkeys(self._opened(1, kept), 1))}
        if len(ones) < 2 or not all_hold(kept, sizes) or self._runs.outcome(sizes) is Outcome.UNKNOWN:
            return
        ((_, outcome),) = self._runs.decided([sizes])
        if outcome in (Outcome.DIFFERENT, Outcome.RENUMBERED):
            asked = [question for question in self._changed_questions(self.sizes.larger, sizes) if question.is_own]
            yield from asked or ([one_is_larger(ones)] if outcome is Outcome.DIFFERENT else [])

    def _joint_others(self, kept: Sequence[Condition]) -> Iterator[Condition]:
        """Yields that one of several dims is 1, as in the example, if the program is another one where none is.

        Of ``x.t().contiguous()`` torch asks whether each size is 1, and a copy is needed only where neither is.
        """
        larger, disproved = self.sizes.larger, disproved_guards(self.sizes.shape_env) if self.sizes.shape_env else []
        fixed = [s for s in larger if sympy.Eq(s, 1) in disproved and {2, 3} <= {*self.sizes.requested(s, (2, 3))}]
        for number in sorted({2, len(fixed)}) if len(fixed) > 1 else ():
            for symbols in itertools.combinations(fixed, number):
                point = {**larger, **dict(zip(symbols, itertools.cycle((2, 3)), strict=False))}
                tried = self._runs.decided([point]) if all_hold(kept, point) else []
                if any(outcome in _WRONG | {Outcome.RENUMBERED} for _, outcome in tried):
                    condition = Condition(sympy.Or(*(sympy.Eq(symbol, 1) for symbol in symbols)))
                    yield self._witnessed(condition, tried, _WRONG)

    def _inner_sizes(self, kept: Sequence[Condition]) -> Iterator[Condition]:
        """Yields conditions on sizes inside of the program that are 0 or 1, and on negative arguments.

        Sizes of the inputs for which most of them are so are tried first. Where tensors without values agree, a kernel
        may still refuse its arguments, which one run with numbers tells.
        """
        if isinstance(self._request.model, ExportedProgram):
            return
        names, equal = self.sizes.names.keys(), self._runs.equal
        left = [inner for inner in inner_conditions(self._program, self.sizes.defined) if {*inner.symbols} <= names]
        if not left:
            return
        points = [point for point in self.sizes.small() if all_hold(kept, point)]
        empty = [inner.expression.args[0] for inner in left if _is_of(inner, 0) and not all(map(inner.holds, points))]
        empty_sizes(self.sizes.shape_env).update(empty)
        left = [inner for inner in left if inner.holds(self.sizes.larger)]
        left = [inner for inner in left if not _is_of(inner, 1) or all(map(inner.holds, equal))]
        for _ in range(_INNER_TRIES):
            excluded = [[inner for inner in left if not inner.holds(point)] for point in points]
            most = max(excluded, key=len, default=[])
            if not most:
                return
            point = points[excluded.index(most)]
            of_kernels = not all(_is_of(inner, 1) for inner in most)
            ((_, outcome),) = self._runs.decided([point], of_kernels)
            left = [inner for inner in left if inner not in most]
            if outcome in _WRONG and self._runs.seen(point) == PROGRAM_FAILS:
                continue  # an operator of ATen refuses what that of ONNX takes
            if outcome in _WRONG or outcome is Outcome.RAISES:
                cause = min(most, key=lambda inner: _is_of(inner, 1))  # kernels refuse an empty tensor, not a size of 1
                proven = replace(cause, kind="bound" if outcome is Outcome.RAISES else "finding")
                yield self._witnessed(proven, [(point, outcome)], {outcome})
                points = [point for point in points if proven.holds(point)]
                left += [inner for inner in most if inner is not cause]

    def _least(self, symbol: sympy.Symbol, condition: Condition) -> Condition:
        """Returns that a dim has the smallest size from 2 on for which the module raises no exception, or 0 if it can.

        It is a bound if the module raises one for size 1 whatever the other dims are.
        """
        larger = self.sizes.larger
        largest = min(larger[symbol], _LARGEST_LEAST)
        least = next((n for n in range(2, largest) if not self._always_raises({symbol: n})), largest)
        kind: Any = "bound" if self._always_raises({symbol: 1}) else condition.kind
        larger_ones, empty = symbol >= least, {**larger, symbol: 0}
        if self.sizes.declared(symbol)[0] == 0 and self._runs.outcome(empty) is Outcome.EQUAL:
            larger_ones = sympy.Ne(symbol, 1) if least == 2 else sympy.Or(larger_ones, sympy.Eq(symbol, 0))
        bound = replace(condition, expression=larger_ones, cause=RAISES, is_certain=False, kind=kind)
        return self._witnessed(bound, [({**larger, symbol: 1}, Outcome.RAISES)], {Outcome.RAISES})

    def _opened(self, size: int, kept: Sequence[Condition]) -> dict[sympy.Symbol, Condition]:
        """Returns the symbols that may have a size, each with a guard that is false there, if torch recorded one."""
        larger, at = self.sizes.larger, self.sizes.at
        tried = [symbol for symbol in self.sizes.names if symbol in larger] if len(self.sizes.names) < MANY else []
        opened = {symbol: Condition(sympy.true) for symbol in tried if at(symbol, size, kept) is not None}
        for guard in self._guards:
            if not guard.raises and (size or guard.is_own) and guard.holds(larger):
                for symbol in guard.symbols:
                    if not guard.holds({**larger, symbol: size}) and at(symbol, size, kept) is not None:
                        opened[symbol] = guard
        return opened

    def _changed_questions(self, sizes: Sizes, others: Sizes) -> list[Condition]:
        """Returns what the code asks whose answer is another one for other sizes, the model's own questions first."""
        return list(changed_questions(self.sizes.shape_env, sizes, others))


def _is_of(condition: Condition, size: int) -> bool:
    return isinstance(condition.expression, sympy.Ne) and bool(condition.expression.args[1] == size)
