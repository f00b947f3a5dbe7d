"""Finds the paths through a forward that branches on data: one capture for each combination of answers.

Where the forward converts a tensor to a bool that depends on data, the path gives the answer, and the captured program
has the condition. Each capture is a program of its own, with its own sizes, so what a path states or makes equal is
true on this path only.
"""

from __future__ import annotations

import dis
import io
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputSpec

from fx_onnx.capture.captured import Captured
from fx_onnx.capture.patches.data_conditions import UNDECIDED, DataPath, OffPathError, Told, is_traced, on_path
from fx_onnx.capture.patches.module_hooks import watch_calls
from fx_onnx.capture.patches.weight_values import is_function, is_written
from fx_onnx.capture.python_values import Place, PythonState, Values, changed_leaves
from fx_onnx.capture.user_outputs import is_graph_output, result_specs
from fx_onnx.data_branches.condition import MARKS, mark
from fx_onnx.messages.errors import CaptureError, OnnxExporterError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.source_lines import innermost_line, is_internal
from fx_onnx.sizes.symbolic_sizes import expression
from fx_onnx.torch_internals.guard_private import known_sizes
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.trace_private import recorded_node

__all__ = ["MOST_PATHS", "capture_paths"]

MOST_PATHS = 16
"""How many paths one model may have."""
_MOST_RUNS = 64  # how often the forward may run, those that raise an exception included
_MOST_NODES = 2**12  # how many calls a condition is compared by
_NEGATIONS = {aten.logical_not.default, aten.bitwise_not.default}


class _Answers(DataPath):
    """The answers on one path.

    Attributes:
        given: the first answers; each later condition is false.
        answers: all answers, in order.
        places: the lines of the conditions, as ``(file:line: code)``.
        are_general: whether the rest of the trace has left the sizes before each condition as they were there. What
            makes a size a number, or excludes some, changes the calls before the condition too.
    """

    def __init__(self, given: Sequence[bool]) -> None:
        super().__init__()
        self.given = tuple(given)

    def begin(self) -> None:
        """Begins a trace."""
        super().begin()
        self.answers: list[bool] = []
        self.places: list[str] = []
        self.are_general: list[bool] = []
        self._known: dict[Hashable, bool] = {}
        self._sizes: list[Mapping[Any, Any]] = []
        self._environment: Any = None

    def run(self, call: Callable[[], Any]) -> Any:
        """Runs the forward; compares the sizes when the trace ends."""
        is_trace = self.is_trace
        result = super().run(call)
        if is_trace and self._environment is not None:
            last = known_sizes(self._environment)
            self.are_general = [all(last.get(each) == size for each, size in own.items()) for own in self._sizes]
        return result

    def decide(self, value: Any, frame: Any) -> Told:
        """Returns the next answer, or that of an equal condition.

        Raises:
            CaptureError: there are too many conditions.
        """
        key, is_negated = _key(value)
        if key in self._known:
            return Told(self._known[key] != is_negated)
        place, index = innermost_line(traceback.extract_stack(frame)), len(self.answers)
        if index == _MOST_RUNS:
            raise _too_many(self.places)
        answer = self.given[index] if index < len(self.given) else False
        self.answers.append(answer)
        self.places.append(place)
        self._known[key] = answer != is_negated
        of_tensor = getattr(value, "fake_mode", None)
        self._environment = value.node.shape_env if of_tensor is None else of_tensor.shape_env
        self._sizes.append(known_sizes(self._environment))
        return Told(answer, is_new=True)

    def mark(self, value: Any, answer: bool) -> None:
        """Records a condition in the program; a condition on sizes is a fact from then on."""
        mark(value, answer)
        if isinstance(value, torch.SymBool):
            try:
                torch._check(value if answer else torch.sym_not(value))
            except RuntimeError as error:  # in a run with other sizes
                raise OffPathError(str(error)) from error


def _key(value: Any) -> tuple[Hashable, bool]:
    """Returns what two equal conditions share, and whether the value is the negation of this."""
    if isinstance(value, torch.SymBool):
        return expression(value), False
    node, is_negated = recorded_node(value), False
    while node is not None and node.target in _NEGATIONS and value.dtype == torch.bool:
        node, is_negated = node.all_input_nodes[0], not is_negated
    return (id(value), value._version) if node is None else _computation(node), is_negated


def _computation(node: torch.fx.Node) -> Hashable:
    """Returns what two nodes share that compute the same from values that nothing has written to."""
    keys: dict[torch.fx.Node, Hashable] = {}
    waiting = [node]
    while waiting:
        current = waiting[-1]
        inputs = [each for each in current.all_input_nodes if each not in keys]
        if len(keys) + len(waiting) > _MOST_NODES:
            return node
        if inputs:
            waiting += inputs
            continue
        waiting.pop()
        is_pure = current.op != "call_function" or is_function(current.target)
        if current.op == "call_function" and is_pure and not is_written(current):
            given = torch.fx.map_arg((current.args, current.kwargs), keys.__getitem__)
            keys[current] = current.target, repr(given)
        else:
            keys[current] = current
    return keys[node]


def capture_paths(
    model: torch.nn.Module, capture: Callable[[], Captured], decided: Callable[[str], None]
) -> list[Captured]:
    """Captures each path of a model on which it raises no exception; returns nothing if it has no condition on data.

    Args:
        model: The model.
        capture: Captures the model on the path that is active.
        decided: Receives the conditions of each path and its seconds.

    Raises:
        CaptureError: There are too many paths, a path cannot be captured, or two paths return another structure or
            leave another Python state.
    """
    search = _Search(model)
    while search.waiting:
        answers = _Answers(search.waiting.pop())
        begin = time.perf_counter()
        search.run(answers, capture)
        if not answers.answers:
            return []
        taken = ", ".join(f"{place} is {answer}" for place, answer in zip(answers.places, answers.answers, strict=True))
        decided(f"path where {taken}: {time.perf_counter() - begin:.2f} s")
    return search.result()


class _Search:
    """The search for the paths through a forward.

    Attributes:
        waiting: the first answers of the paths that are not captured yet.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.waiting: list[tuple[bool, ...]] = [()]
        self._model, self._state, self._left = model, PythonState(model), dict[Place, Values]()
        self._generators = random.getstate(), np.random.get_state(), torch.get_rng_state()
        self._found: list[Captured] = []
        self._raised: list[CaptureError] = []
        self._checks: dict[str, None] = {}
        self._runs = 0

    def run(self, answers: _Answers, capture: Callable[[], Captured]) -> None:
        """Captures a path in the first state of the model; what follows from its new conditions is waiting then."""
        self._restore()
        self._runs += 1
        left: list[Mapping[Place, Values]] = []

        def keep(call: Callable[[], Any]) -> Any:
            result = call()
            left.append(left[0] if left else self._state.again().values)  # the calls after the trace are trials
            return result

        is_quiet = self._runs > 1
        try:
            with (
                on_path(answers),
                watch_calls({self._model: keep}),
                redirect_stdout(io.StringIO()) if is_quiet else nullcontext(),
            ):
                captured = capture()
        except CaptureError as error:
            if not (answers.answers and _is_raised_by_model(error.__cause__)):
                raise
            self._raised.append(error)
            self._checks[answers.places[-1]] = None
        else:
            if self._found:
                _refuse_unlike(self._found[0].program, captured.program, answers.places)
                self._refuse_other_state(left[0], answers.places)
            self._left = left[0]
            marks = [node for node in captured.program.graph.nodes if node.target in MARKS]
            if len(marks) != len(answers.answers):
                raise CaptureError(
                    f"torch.export does not record a condition on data {answers.places[-1]}; move it to the forward.",
                    id=MessageId.BRANCH_ON_DATA,
                )
            general = tuple(answers.are_general)
            self._found.append(replace(captured, answers=tuple(answers.answers), are_general=general))
        finally:
            self._restore()
        own = answers.answers
        self.waiting += [(*own[:place], not own[place]) for place in range(len(answers.given), len(own))]
        if len(self._found) > MOST_PATHS or self._runs + len(self.waiting) > _MOST_RUNS:
            raise _too_many(answers.places)

    def result(self) -> list[Captured]:
        """Returns the paths; the first one has the places of the checks, which only lead to an exception.

        Raises:
            CaptureError: The model raises an exception on each path.
        """
        if not self._found:
            raise self._raised[0]
        first, *others = self._found
        return [replace(first, left_out=(*first.left_out, *self._checks)), *others]

    def _restore(self) -> None:
        self._state.restore(shared=self._state.values)
        random.setstate(self._generators[0])
        np.random.set_state(self._generators[1])
        torch.set_rng_state(self._generators[2])

    def _refuse_other_state(self, left: Mapping[Place, Values], places: Sequence[str]) -> None:
        """Raises a CaptureError if a path left another Python state than the one before."""
        for place in {**self._left, **left}:
            one, other = (_without_traced(each.get(place, {})) for each in (self._left, left))
            if changed_leaves(one, other):
                raise CaptureError(
                    f"The forward leaves another value of {place.name!r} in {place} where a condition on data differs "
                    f"{places[-1]}, and an ONNX model keeps no Python values; keep it in a buffer.",
                    id=MessageId.BRANCH_ON_DATA,
                )


def _without_traced(values: Values) -> Values:
    """Returns values with one mark for all tensors that have no values, which the next call gets from its own run."""
    traced = {key: "traced" for key, value in values.items() if isinstance(value, torch.Tensor) and is_traced(value)}
    return {**values, **traced}


def _refuse_unlike(first: ExportedProgram, other: ExportedProgram, places: Sequence[str]) -> None:
    """Raises a CaptureError if two paths return another structure, or other values that are no results of the model."""
    structures = [(each.call_spec.out_spec, *map(_constant, result_specs(each))) for each in (first, other)]
    if structures[0] != structures[1]:
        raise CaptureError(
            f"The forward returns another structure where a condition on data differs {places[-1]}; return the same "
            "structure from each branch.",
            id=MessageId.BRANCH_ON_DATA,
        )


def _constant(spec: OutputSpec) -> Any:
    """Returns a result that is no output of the ONNX model, such as None or a text."""
    return None if is_graph_output(spec) else spec.arg.value


def _is_raised_by_model(error: Any) -> bool:
    """Returns whether a line of the model raises an exception, and not because torch could not decide something."""
    if not isinstance(error, Exception) or isinstance(error, (*UNDECIDED, OnnxExporterError)):
        return False
    frame, instruction = list(_steps(error))[-1]
    known = {each.offset: each.opname for each in dis.get_instructions(frame.f_code)}
    causes = (each for each in (error.__cause__, error.__context__) if each is not None)
    is_raise = known.get(instruction) == "RAISE_VARARGS" and not is_internal(frame.f_code.co_filename)
    return is_raise and all(_is_raised_by_model(each) for each in causes)


def _steps(error: BaseException) -> Iterator[tuple[Any, int]]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame, step.tb_lasti
        step = step.tb_next


def _too_many(places: Sequence[str]) -> CaptureError:
    ((place, _),) = Counter(places).most_common(1)
    return CaptureError(
        f"The forward has more than {MOST_PATHS} paths that depend on data, most of them by {place}; write a loop on "
        "data with torch.while_loop, and a branch with torch.where or torch.cond.",
        id=MessageId.BRANCH_ON_DATA,
    )
