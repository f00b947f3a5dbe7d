"""Finds the paths through a forward that branches on data: one capture for each combination of answers.

Where the forward converts a tensor to a bool that depends on data, the path gives the answer, and the captured program
has the condition. Each capture is a program of its own, with its own sizes, so what a path states or makes equal is
true on this path only.
"""

from __future__ import annotations

import dis
import io
import textwrap
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from itertools import takewhile
from operator import attrgetter
from types import TracebackType
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_onnx.capture.captured import Captured, DataCondition
from fx_onnx.capture.patches.data_conditions import UNDECIDED, OffPathError, is_traced, on_path
from fx_onnx.capture.patches.module_hooks import watch_calls
from fx_onnx.capture.patches.weight_values import is_function, is_written
from fx_onnx.capture.python_values import Place, PythonState, Values, changed_leaves
from fx_onnx.data_branches.condition import mark
from fx_onnx.data_branches.path_answers import PathAnswers, Told, is_of_model
from fx_onnx.data_branches.while_loops import rewritten_loop
from fx_onnx.messages.errors import CaptureError, OnnxExporterError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.source_lines import innermost_line, user_frame
from fx_onnx.requests.user_outputs import is_graph_output, result_specs
from fx_onnx.sizes.symbolic_sizes import expression
from fx_onnx.torch_internals.guard_private import known_sizes
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.trace_private import recorded_node

__all__ = ["capture_paths"]

_PATHS_PER_ROUND = 4  # of a while loop, which is unrolled for that many paths
_RUNS_PER_PATH = 4  # how often the forward may run for each path that is allowed, those that raise included
_MOST_NODES = 2**12  # how many calls a condition is compared by
_NEGATIONS = {aten.logical_not.default, aten.bitwise_not.default}


class _Answers(PathAnswers):
    """The answers on one path.

    Attributes:
        given: the first answers; each later condition is false.
        conditions: all conditions, in order.
    """

    def __init__(self, given: Sequence[bool], most: int) -> None:
        super().__init__()
        self.given, self._most = tuple(given), most

    @property
    def answers(self) -> tuple[bool, ...]:
        """What the conditions are."""
        return tuple(condition.answer for condition in self.conditions)

    def begin(self) -> None:
        """Begins a trace."""
        super().begin()
        self.conditions: list[DataCondition] = []
        self._known: dict[Hashable, bool] = {}
        self._numbers: dict[Hashable, int] = {}
        self._sizes: list[tuple[Any, Mapping[Any, Any]]] = []

    def run(self, call: Callable[[], Any]) -> Any:
        """Runs the forward; compares the sizes when the trace ends."""
        is_trace, result = self.is_trace, super().run(call)
        for index, (environment, sizes) in enumerate(self._sizes if is_trace else ()):
            is_general = sizes.items() <= known_sizes(environment).items()
            self.conditions[index] = self.conditions[index]._replace(is_general=is_general)
        return result

    def decide(self, value: Any, frame: Any) -> Told:
        """Returns the next answer, or that of an equal condition.

        Raises:
            CaptureError: there are too many conditions.
        """
        key, is_negated = self._key(value)
        if key in self._known:
            return Told(self._known[key] != is_negated)
        index, line = len(self.conditions), innermost_line(traceback.extract_stack(frame))
        if index == self._most * _RUNS_PER_PATH:
            raise _too_many(self.conditions, self._most)
        before = takewhile(attrgetter("answer"), (c for c in reversed(self.conditions) if c.line == line))
        if ": while " in line and len([*before]) == self._most // _PATHS_PER_ROUND:
            raise _unbounded(line, user_frame(frame))
        answer = self.given[index] if index < len(self.given) else False
        self.conditions.append(DataCondition(answer, line))
        self._known[key] = answer != is_negated
        environment = (value.node if isinstance(value, torch.SymBool) else value.fake_mode).shape_env
        self._sizes.append((environment, known_sizes(environment)))
        return Told(answer, is_new=True)

    def _key(self, value: Any) -> tuple[Hashable, bool]:
        """Returns what two equal conditions share, and whether the value is the negation of this."""
        if isinstance(value, torch.SymBool):
            return expression(value), False
        node, is_negated = recorded_node(value), False
        while node is not None and node.target in _NEGATIONS and value.dtype == torch.bool:
            node, is_negated = node.all_input_nodes[0], not is_negated
        return object() if node is None else _computation(node, self._numbers), is_negated

    def mark(self, value: Any, answer: bool) -> None:
        """Records a condition in the program; a condition on sizes is a fact from then on."""
        mark(value, answer)
        if isinstance(value, torch.SymBool):
            try:
                torch._check(value if answer else torch.sym_not(value))
            except RuntimeError as error:  # in a run with other sizes
                raise OffPathError(str(error)) from error


def _computation(node: torch.fx.Node, numbers: dict[Hashable, int]) -> Hashable:
    """Returns what two nodes share that compute the same; an object of its own if something writes to a value.

    Args:
        node: The node.
        numbers: The numbers of computations, which receives those of the node and of what it reads.
    """
    known: dict[torch.fx.Node, tuple[str, int]] = {}
    waiting = [node]
    while waiting:
        current = waiting[-1]
        inputs = [operand for operand in current.all_input_nodes if operand not in known]
        if is_written(current) or len(known) + len(waiting) > _MOST_NODES:
            return object()
        if inputs:
            waiting += inputs
            continue
        is_pure = current.op == "call_function" and is_function(current.target)
        key = (
            (current.target, repr(torch.fx.map_arg((current.args, current.kwargs), known.get))) if is_pure else current
        )
        known[waiting.pop()] = "node", numbers.setdefault(key, len(numbers))
    return known[node]


def capture_paths(
    model: torch.nn.Module, capture: Callable[[], Captured], decided: Callable[[str], None], most: int
) -> list[Captured]:
    """Captures each path of a model on which it raises no exception; one without a condition on data may have none.

    Args:
        model: The model.
        capture: Captures the model on the path that is active.
        decided: Receives the conditions of each path and its seconds.
        most: The largest number of paths.

    Raises:
        CaptureError: There are too many paths, a path cannot be captured, or two paths return another structure or
            leave another Python state.
    """
    search = _Search(model, most)
    while search.waiting:
        answers = _Answers(search.waiting.pop(), most)
        begin = time.perf_counter()
        search.run(answers, capture)
        if not answers.conditions:
            return search.captured
        taken = ", ".join(f"{condition.line} is {condition.answer}" for condition in answers.conditions)
        decided(f"path where {taken}: {time.perf_counter() - begin:.2f} s")
    return search.result()


_NOTHING: Mapping[Place, Values] = {}


class _Search:
    """The search for the paths through a forward.

    Attributes:
        waiting: the first answers of the paths that are not captured yet.
        captured: the paths that are.
    """

    def __init__(self, model: torch.nn.Module, most: int) -> None:
        self._most = most
        self.waiting: list[tuple[bool, ...]] = [()]
        self._model, self._state, self._left = model, PythonState(model), _NOTHING
        self._generator = torch.get_rng_state()
        self.captured: list[Captured] = []
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
            if not answers.conditions:  # the error is about something else than a condition
                return
            if not _is_raised_by_model(error.__cause__):
                raise
            self._raised.append(error)
            self._checks[answers.conditions[-1].line] = None
        else:
            self._add(replace(captured, conditions=tuple(answers.conditions)), left[0])
        finally:
            self._restore()
        own = answers.answers
        self.waiting += [(*own[:index], not own[index]) for index in range(len(answers.given), len(own))]
        if len(self.captured) > self._most or self._runs + len(self.waiting) > self._most * _RUNS_PER_PATH:
            raise _too_many(answers.conditions, self._most)

    def _add(self, captured: Captured, left: Mapping[Place, Values]) -> None:
        """Adds a path and the Python state that it left.

        Raises:
            CaptureError: It returns another structure than the paths before, or left another state.
        """
        before, self._left = self._left or left, left
        other = next((place for place in {**before, **left} if _differs(place, before, left)), None)
        reason = ""
        if self.captured and _structure(self.captured[0].program) != _structure(captured.program):
            reason = "The forward returns another structure where a condition on data differs"
        elif other is not None:
            reason = f"The forward leaves another {other.name!r} in {other} where a condition on data differs"
        if reason:
            raise CaptureError(
                f"{reason} {captured.conditions[-1].line}; return the same structure from each branch, and keep what "
                "changes from call to call in buffers.",
                id=MessageId.BRANCH_ON_DATA,
            )
        self.captured.append(captured)

    def result(self) -> list[Captured]:
        """Returns the paths; the first one has the places of the checks, which only lead to an exception.

        Raises:
            CaptureError: The model raises an exception on each path.
        """
        if not self.captured:
            raise self._raised[0]
        first, *others = self.captured
        return [replace(first, left_out=(*first.left_out, *self._checks)), *others]

    def _restore(self) -> None:
        self._state.restore(shared=self._state.values)
        torch.set_rng_state(self._generator)


def _differs(place: Place, one: Mapping[Place, Values], other: Mapping[Place, Values]) -> bool:
    """Returns whether two paths left other values at a place. Tensors of the trace have no values."""
    pairs = changed_leaves(one.get(place, {}), other.get(place, {}))
    return any(not all(isinstance(value, torch.Tensor) and is_traced(value) for value in pair) for pair in pairs)


def _structure(program: ExportedProgram) -> Any:
    """Returns the structure of the results, with those that are no outputs of the ONNX model, such as None."""
    specs = result_specs(program)
    return program.call_spec.out_spec, [None if is_graph_output(spec) else str(spec.arg) for spec in specs]


def _is_raised_by_model(error: Any) -> bool:
    """Returns whether a line of the model raises an exception, and not because torch could not decide something."""
    if not isinstance(error, Exception) or isinstance(error, (*UNDECIDED, OnnxExporterError)):
        return False
    *_, last = _steps(error.__traceback__)
    code = last.tb_frame.f_code
    is_raise = any(
        instruction.offset == last.tb_lasti and instruction.opname == "RAISE_VARARGS"
        for instruction in dis.get_instructions(code)
    )
    causes = (cause for cause in (error.__cause__, error.__context__) if cause is not None)
    return is_raise and is_of_model(code.co_filename) and all(map(_is_raised_by_model, causes))


def _steps(step: TracebackType | None) -> Iterator[TracebackType]:
    while step is not None:
        yield step
        step = step.tb_next


def _too_many(conditions: Sequence[DataCondition], most: int) -> CaptureError:
    ((line, _),) = Counter(condition.line for condition in conditions).most_common(1)
    return CaptureError(
        f"The forward has more than {most} paths that depend on data, most of them by {line}; write a loop on data "
        "with torch.while_loop and a branch with torch.where or torch.cond, or give a larger max_data_paths.",
        id=MessageId.BRANCH_ON_DATA,
    )


def _unbounded(line: str, frame: Any) -> CaptureError:
    example = textwrap.indent(rewritten_loop(frame.f_code, frame.f_lineno), "    ")
    text = (
        f"Data decide after how many rounds the loop {line} ends; give a larger max_data_paths if a few more are "
        "enough, or write it with torch.while_loop"
    )
    return CaptureError(f"{text}:\n{example}" if example else f"{text}.", id=MessageId.BRANCH_ON_DATA)
