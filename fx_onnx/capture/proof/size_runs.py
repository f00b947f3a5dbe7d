"""Runs a module and its captured program at sizes of the inputs, each once: first without values, then with numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from fx_onnx.capture.proof.input_sizes import InputSizes
from fx_onnx.capture.proof.paired_runs import Outcome, PairedRuns
from fx_onnx.sizes.trial_sizes import with_other_values

__all__ = ["SizeRuns"]

_DECIDED_WITH_NUMBERS = {Outcome.DIFFERENT: 1, Outcome.RENUMBERED: 2, Outcome.UNKNOWN: 2}
"""What a run with numbers decides, or confirms, and at how many sizes; the others are like these."""

_MOST_NUMBERS = 8  # how many runs with numbers one capture may cost; those that end in an exception cost little
_FEW = 2**12  # how many elements the inputs of a run with numbers may have, if the example has less


class SizeRuns:
    """What the runs of a module and its program tell, by the sizes of the inputs.

    Attributes:
        equal: the sizes at which both computed the same.
    """

    def __init__(self, sizes: InputSizes, runs: PairedRuns) -> None:
        """Takes the sizes of the inputs, and what runs both for arguments."""
        self._sizes, self._runs = sizes, runs
        self._outcomes: dict[Hashable, Outcome] = {}
        self._of_numbers: dict[Hashable, Outcome] = {}
        self._seen: dict[Hashable, str] = {}
        self._agreeing: set[bool] = set()  # whether both agree on the meta device, and on others
        self.equal: list[Mapping[Any, int]] = []

    def outcome(self, sizes: Mapping[Any, int]) -> Outcome:
        """Returns how the module and the program compare for sizes.

        They run on the meta device first, which is faster. A difference counts only if both agree where all guards
        hold, and an exception only if they agree somewhere; else the tensors of this device do not tell, of any size.
        """
        larger = self._sizes.larger
        for on_meta in (True, False):
            if self._outcomes.get((on_meta, *larger.items()), Outcome.EQUAL) is not Outcome.EQUAL:
                continue
            outcome = self._compared(sizes, on_meta)
            if outcome in (Outcome.RAISES, Outcome.UNKNOWN) and on_meta in self._agreeing:
                return outcome
            if outcome is Outcome.EQUAL or self._compared(larger, on_meta) is Outcome.EQUAL:
                return outcome
        return Outcome.UNKNOWN

    def decided(
        self, points: Iterable[Mapping[Any, int]], of_kernels: bool = False
    ) -> list[tuple[Mapping[Any, int], Outcome]]:
        """Returns how the module and the program compare at sizes; numbers decide what tensors without values do not.

        These do not tell whether other operators compute equal results. For sizes of 0 and 1, some of their kernels
        raise exceptions, or return shapes, that those for numbers do not.

        Args:
            points: The sizes.
            of_kernels: Whether numbers decide too where both are equal: a kernel may refuse its arguments.
        """
        tried = [(point, self.outcome(point)) for point in points]
        decided = list(tried)
        for outcome, most in {**_DECIDED_WITH_NUMBERS, **({Outcome.EQUAL: 1} if of_kernels else {})}.items():
            indices = [index for index, pair in enumerate(tried) if pair[1] is outcome]
            if outcome is Outcome.DIFFERENT:
                indices = [index for index in indices if min(tried[index][0].values()) < 2]
            known = [self.of_numbers(tried[index][0]) for index in indices[:most]]
            for index, of_numbers in zip(indices, known * len(indices) if len({*known}) == 1 else known, strict=False):
                decided[index] = tried[index][0], self._with_numbers(outcome, of_numbers)
            if any(outcome is Outcome.DIFFERENT for _, outcome in decided):
                break  # one difference is enough
        return decided

    def _with_numbers(self, outcome: Outcome, of_numbers: Outcome) -> Outcome:
        """Returns what both outcomes tell; a later stage makes other shapes right for sizes that depend on data."""
        if self._runs.data_sizes and {outcome, of_numbers} == {Outcome.DIFFERENT, Outcome.UNKNOWN}:
            return Outcome.UNKNOWN
        return outcome if of_numbers is Outcome.UNKNOWN else of_numbers

    def all_raise(self, points: Iterable[Mapping[Any, int]]) -> bool:
        """Returns whether the module raises an exception at each of the sizes."""
        tried = list(points)
        may_raise = all(self.outcome(point) in (Outcome.RAISES, Outcome.UNKNOWN) for point in tried)
        return may_raise and all(outcome is Outcome.RAISES for _, outcome in self.decided(tried))

    def compared_sizes(self, sizes: Mapping[Any, int]) -> list[int]:
        """Returns the numbers that the module compares sizes with, at sizes of the inputs."""
        return sorted(self._runs.compared_sizes(lambda: self._sizes.empty_arguments(sizes)))

    def _compared(self, sizes: Mapping[Any, int], on_meta: bool) -> Outcome:
        key = (on_meta, *sizes.items())
        if key not in self._outcomes:
            outcome = self._runs.compare(lambda: self._sizes.empty_arguments(sizes), on_meta)
            self._outcomes[key], self._seen[tuple(sizes.items())] = outcome, self._runs.seen
            if outcome is Outcome.EQUAL:
                self._agreeing.add(on_meta)
                self.equal.append(sizes)
        return self._outcomes[key]

    def of_numbers(self, sizes: Mapping[Any, int]) -> Outcome:
        """Returns how both compare in eager mode, for numbers of these sizes; unknown where that would take long."""
        key = tuple(sizes.items())
        if key not in self._of_numbers:
            outcome = Outcome.UNKNOWN
            most = max(self._sizes.elements(self._sizes.example), _FEW)
            whole = [other for other in self._of_numbers.values() if other is not Outcome.RAISES]
            if len(whole) < _MOST_NUMBERS and self._sizes.elements(sizes) <= most:
                given = self._sizes.arguments(sizes, with_other_values())
                outcome = self._runs.compare_numbers(*given)
                self._seen[key] = self._runs.seen
            self._of_numbers[key] = outcome
        return self._of_numbers[key]

    def other_line(self) -> str:
        """Returns the line of the module that computes what the program does not, at the example's sizes."""
        return self._runs.other_line(self._sizes.empty_arguments)

    def seen(self, sizes: Mapping[Any, int]) -> str:
        """Returns what happened at sizes at which both ran."""
        return self._seen.get(tuple(sizes.items()), "")
