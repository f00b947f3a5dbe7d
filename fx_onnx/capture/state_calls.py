"""Finds on which changed values of Python the results of later calls depend, by calls.

A change alone is no problem: a forward may count its calls, or keep a table that it builds once. So the model is called
several times in a row, and beside these calls the model in its first state is called with the same arguments. The calls
run on tensors without values; where other operators compute the results, numbers decide.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from fx_onnx.capture.patches.data_conditions import UNDECIDED
from fx_onnx.capture.patches.torch_export import weights_of_this_thread
from fx_onnx.capture.proof.paired_runs import PairedRuns, compare_results
from fx_onnx.capture.proof.run_modes import Outcome, Undecidable
from fx_onnx.capture.proof.size_proof import SizeProof
from fx_onnx.capture.python_state import ChangedValue, ChangedValues
from fx_onnx.capture.python_values import RANDOM, Place, changed_leaves
from fx_onnx.messages.source_lines import is_internal, is_library, line_text

__all__ = ["dependent_values"]

_CALLS = 5  # what begins later is not found


def dependent_values(changed: ChangedValues, proof: SizeProof, runs: PairedRuns) -> list[ChangedValue]:
    """Returns the changed values on which the results of later calls depend, or may depend if nothing can run.

    Values of one name in modules of one class are tried together, each such group with all others as before.
    """
    places = {value.place for value in changed.values}
    if not places:
        return []
    with weights_of_this_thread(changed.model):  # what a call assigns is lost else
        return _dependent_values(changed, places, _Calls(changed, proof, runs))


def _dependent_values(changed: ChangedValues, places: set[Place], calls: _Calls) -> list[ChangedValue]:
    if calls.depend(places) is False:
        return []
    groups = dict[Any, set[Place]]()
    for place in places:
        groups.setdefault((place.kind, place.name), set()).add(place)
    alone = set[Place]().union(*(group for group in groups.values() if len(groups) > 1 and calls.depend(group)))
    dependent = [value for value in changed.values if value.place in (alone or places)]
    lines = calls.lines({value.place for value in dependent} - {*RANDOM})
    return [value._replace(line=lines.get(value.place, "")) for value in dependent]


class _Calls:
    """Calls of a model in a row, and the same calls of the model in its first state."""

    def __init__(self, changed: ChangedValues, proof: SizeProof, runs: PairedRuns) -> None:
        self._state, self._runs, self._places = changed.state, runs, {value.place for value in changed.values}
        usual, other = proof.sizes.larger, proof.other_sizes()
        self._given = [
            partial(proof.sizes.arguments, sizes) for sizes in (usual, usual, other, *[usual] * (_CALLS - 3))
        ]
        self._first: dict[Any, Any] = {}  # the results in the first state, by the way and the number of the call

    def depend(self, kept: Collection[Place]) -> bool | None:
        """Returns whether results depend on what earlier calls left at places; None if it is unknown."""
        is_numbered = False
        for way, count in ((True, _CALLS), (False, _CALLS), (None, 2), (None, _CALLS)):  # two calls often tell
            if way is False and is_numbered:
                continue  # fake tensors have the numbers of those on the meta device
            try:
                outcomes = self._outcomes(way, count, kept)
            except (Undecidable, *UNDECIDED):
                continue
            finally:
                self._state.restore(shared=self._places)
            is_numbered = True
            if Outcome.DIFFERENT in outcomes:
                return True
            if outcomes == {Outcome.EQUAL} and count == _CALLS:
                return False
        return None

    def _outcomes(self, way: bool | None, count: int, kept: Collection[Place]) -> set[Outcome]:
        """Returns how the results of calls in a row, but for the first, compare with those in the first state."""
        for number in range(1, count):
            if (way, number) not in self._first:
                self._first[way, number] = self._result(way, number)
        first = [self._first[way, number] for number in range(1, count)]
        if any(isinstance(result, type) for result in first):
            raise Undecidable  # the module cannot run so
        used = [self._result(way, number, kept if number else ()) for number in range(count)]
        return {*map(compare_results, used[1:], first)}

    def _result(self, way: bool | None, number: int, kept: Collection[Place] = ()) -> Any:
        """Calls the model after a restoration of all but some places; returns what identifies its results.

        Args:
            way: Whether the call is on the meta device, on fake tensors, or None for numbers.
            number: The number of the call; each has other arguments.
            kept: The places that stay as an earlier call left them.
        """
        self._state.restore(kept, shared=self._places)
        try:
            return self._runs.call(self._given[number], way, number, continues=bool(kept))
        except (Undecidable, *UNDECIDED):
            raise
        except Exception as error:  # the forward is the user's code
            return type(error)

    def lines(self, places: Collection[Place]) -> Mapping[Place, str]:
        """Returns the line of the user's or a library's code that first changes each place, after a space."""
        lines, last = dict[Place, str](), [""]
        before = {place: self._state.values.get(place, {}) for place in places}

        def follow(frame: Any, event: str, argument: Any) -> Any:
            if is_internal(frame.f_code.co_filename) or is_library(frame.f_globals.get("__name__", "")):
                return None
            for place in before.keys() - lines.keys() if last[0] else ():
                if changed_leaves(before[place], self._state.leaves(place)):
                    lines[place] = f" {last[0]}"
            last[0] = line_text(frame.f_code.co_filename, frame.f_lineno)
            return follow

        outer = sys.gettrace()
        sys.settrace(follow)
        try:
            self._result(True, 0)
        except (Undecidable, *UNDECIDED):
            pass
        finally:
            sys.settrace(outer)
            self._state.restore(shared=self._places)
        return lines
