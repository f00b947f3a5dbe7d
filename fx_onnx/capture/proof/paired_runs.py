"""Compares what a module and a captured program compute for given sizes, on tensors without values.

Each operator gives its results numbers (``value_numbers.py``). Equal numbers of all results prove that the program
computes what the module computes.

The tensors are on the meta device, where an operator takes a fraction of the time of one on fake tensors. Fake tensors
are for what the meta device refuses: values of constants, sizes that depend on data, and autocast.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import cached_property, partial
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.aten.shared_storages import written_copies
from fx_onnx.capture.patches.data_conditions import UNDECIDED, OffPathError
from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.capture.patches.torch_export import set_tracing_flags
from fx_onnx.capture.proof.graph_interpreter import GraphInterpreter
from fx_onnx.capture.proof.run_modes import ComparedSizes, IndexByTensor, OnMeta, Outcome, Undecidable
from fx_onnx.capture.proof.value_numbers import ValueNumbers
from fx_onnx.capture.python_values import PythonState
from fx_onnx.onnx_model.tolerances import distance_of
from fx_onnx.sizes.symbolic_sizes import is_data_dependent
from fx_onnx.sizes.trial_sizes import resized_empty, with_other_values
from fx_onnx.torch_internals.guard_private import as_made
from fx_onnx.torch_internals.operators import nodes_of
from fx_onnx.torch_internals.random_state import random_numbers_of
from fx_onnx.torch_internals.torch_private import (
    FakeTensor,
    HigherOrderOperator,
    pytree,
    storage_id,
)

__all__ = ["PROGRAM_FAILS", "Outcome", "PairedRuns", "compare_results"]

_logger = logging.getLogger("fx_onnx.stages")
_LARGE = 2**30
"""The bytes of weights from which on a module does not run in eager mode."""
PROGRAM_FAILS = "the program fails, and the module does not"


class PairedRuns:
    """Runs a module and the program that was captured from it on fake tensors.

    The runs must have the context of the capture, so that the module takes the branches that it took there.
    """

    def __init__(
        self, model: torch.nn.Module | None, program: ExportedProgram, state: PythonState | None = None
    ) -> None:
        """Takes the program, its module, and the Python state of the module, which each comparison restores.

        Without a module, the program tells only which sizes it refuses. Without a state it is read now.
        """
        self._model, self._program = model, program
        self.state = PythonState(model) if state is None and model is not None else state
        self._chosen: Callable[[int], int] | None = None
        self._branch = True
        self.seen = ""
        """What happened in the last comparison, in a few words."""
        self.others: list[torch.fx.Node] = []
        self.sizes: dict[Any, Any] = {}
        self.copies = written_copies(program.graph_module)
        self._numbers = {on_meta: ValueNumbers(on_meta) for on_meta in (True, False)}
        nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
        self._inputs = list(zip(nodes, program.graph_signature.input_specs, strict=True))
        values = [node.meta.get("val") for node, _ in self._inputs]
        fake = [value for value in values if isinstance(value, FakeTensor)]
        self._mode: Any = fake[0].fake_mode if fake else None
        devices = {tensor.device for tensor in fake}
        self._device = fake[0].device if len(devices) == 1 else None
        given = {} if model is None else _weights(model)
        fakes: dict[int, Any] = {}  # tied weights are one tensor
        self._weights = {
            spec.target: fakes.setdefault(id(given.get(spec.target, node)), node.meta["val"])
            for node, spec in self._inputs
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
        }

    def compare_for_data(self, given: Callable[[], tuple[Any, Any]], chosen: Callable[[int], int]) -> Outcome:
        """Returns how the results of both compare where the sizes that depend on data are chosen, each by its order.

        The program runs as in eager mode; ``others`` receives the nodes with another shape than the captured one, and
        ``sizes`` the size of each symbol. The program of no module is what it computes there.
        """
        self.others, self._chosen = [], chosen
        try:
            if (outcome := self.compare(given)) in (Outcome.DIFFERENT, Outcome.RENUMBERED):
                self.others = []
                with IndexByTensor():
                    outcome = self.compare(given)
            return outcome
        finally:
            self._chosen = None

    @property
    def made(self) -> int:
        """The number of sizes that depended on data so far."""
        return len(self._numbers[False].made)

    def compare(self, given: Callable[[], tuple[Any, Any]], on_meta: bool = False) -> Outcome:
        """Compares the results of both.

        Args:
            given: Returns new fake tensors as ``(args, kwargs)``, in the structure of the example.
            on_meta: Whether both run on tensors of the meta device, which is several times as fast. What needs the
                device, a value, or a size that depends on data fails there.
        """
        outcomes = set[Outcome]()
        for branch in self._branches:
            outcomes.add(outcome := self._compare(given, on_meta, branch))
            if outcome in (Outcome.DIFFERENT, Outcome.DEPENDS, Outcome.RENUMBERED):  # one branch is enough
                return outcome
        return outcome if len(outcomes) == 1 else Outcome.UNKNOWN

    def _compare(self, given: Callable[[], tuple[Any, Any]], on_meta: bool, branch: bool) -> Outcome:
        """Compares the results where each condition in the program chooses the same branch."""
        self.seen, self._branch = "", branch
        try:
            self._check_decidable(on_meta)
            want = self._run(self._run_program if self._model is None else self._run_module, given, on_meta)
        except UNDECIDED:
            return Outcome.UNKNOWN if on_meta else Outcome.DEPENDS
        except Exception as error:  # the forward is the user's code, and some operators have no kernel for meta tensors
            has_no_kernel = on_meta and isinstance(error, NotImplementedError)
            is_unknown = has_no_kernel or (self._chosen is None and self._numbers[on_meta].refuses_empty)
            return self._failed(error, _raised(error), Outcome.UNKNOWN if is_unknown else Outcome.RAISES)
        if self._model is None:
            return Outcome.UNKNOWN if self._chosen is None else Outcome.EQUAL
        return self._compared_with(want, given, on_meta)

    def _compared_with(self, want: Any, given: Callable[[], tuple[Any, Any]], on_meta: bool) -> Outcome:
        """Runs the program and returns how its results compare with what the module computed."""
        try:
            got = self._run(self._run_program, given, on_meta)
        except Exception as error:  # an operator of the program refuses the sizes
            return self._failed(error, PROGRAM_FAILS, Outcome.DIFFERENT)
        self.seen = _difference(got[0], want[0], _other_shape)
        return compare_results(got, want)

    def _failed(self, error: Exception, seen: str, outcome: Outcome) -> Outcome:
        """Returns what an exception of a run means, and keeps what was seen; some are none of the model's."""
        if isinstance(error, Undecidable):
            return Outcome.UNKNOWN
        if isinstance(error, OffPathError):  # the program is one path of the model, which these sizes do not take
            self.others = []
            return Outcome.EQUAL
        self.seen = seen
        return outcome

    def compared_sizes(self, given: Callable[[], tuple[Any, Any]]) -> set[int]:
        """Returns the numbers that the module compares sizes with, on tensors of the meta device."""
        mode = ComparedSizes()

        def run(*inputs: Any) -> Any:
            with mode:
                return self._run_module(*inputs)

        for branch in self._branches:
            self._branch = branch
            with suppress(Exception):  # the forward is the user's code; what it compares before tells
                self._check_decidable(on_meta=True)
                self._run(run, given, on_meta=True)
        return mode.numbers

    def other_line(self, given: Callable[[], tuple[Any, Any]]) -> str:
        """Returns the line of the module's first operator that the program does not have; empty if none is known."""
        numbers = self._numbers[False] = ValueNumbers(False)
        try:
            self._run(self._run_program, given, False)
            numbers.find_line()
            self._run(self._run_module, given, False)
        except Exception:  # the forward is the user's code; the operators before the exception tell
            _logger.debug("no line", exc_info=True)
        return numbers.line

    def call(
        self, given: Callable[[Any], tuple[Any, Any]], on_meta: bool | None, number: int, continues: bool = False
    ) -> Any:
        """Calls the module, which keeps the Python state that it leaves; returns what identifies its results.

        Args:
            given: Returns the arguments; its argument makes a tensor from one of the example and a shape.
            on_meta: Whether the call is on the meta device, or on fake tensors; with numbers for None.
            number: The number of the call; each has other arguments, and draws other random numbers.
            continues: Whether tensors that the call before has made have what it has written into them.

        Raises:
            Undecidable: The call is not possible so.
        """
        if on_meta is not None:
            self._check_decidable(on_meta)
            self._branch = True  # each call takes the same branches
            return self._run(self._call_module, partial(given, resized_empty), on_meta, number, continues)[:2]
        return self._results_of_numbers(self._call_module, *given(with_other_values(number)), seed=number)

    def _check_decidable(self, on_meta: bool) -> None:
        has_loop = not self._bodies <= {torch.ops.higher_order.cond}
        if self._mode is None or has_loop or (on_meta and self._device is None):
            raise Undecidable

    def _run(
        self,
        run: Callable[..., Any],
        given: Callable[[], tuple[Any, Any]],
        on_meta: bool,
        number: int = 0,
        continues: bool = False,
    ) -> Any:
        """Returns the shapes of the results of a run, and what identifies the results and the buffers after it."""
        numbers, weights = self._numbers[on_meta], self._weights
        numbers.begin(self._chosen, number, self._branch, continues)
        with ExitStack() as stack:
            stack.enter_context(set_tracing_flags())
            with self._mode:
                inputs = given()
            for index, leaf in enumerate(pytree.tree_leaves(inputs)):
                if isinstance(leaf, torch.Tensor):
                    numbers.define(leaf, numbers.number("input", number, index))
            inputs, weights = pytree.tree_map_only(torch.Tensor, numbers.placed, (inputs, weights))
            with nullcontext() if on_meta else self._mode:
                weights = _separate(weights, torch.Tensor.detach)
            storages = {name: storage_id(tensor) for name, tensor in weights.items()}
            if not on_meta:
                stack.enter_context(self._mode)
                stack.enter_context(self._mode.shape_env.ignore_fresh_unbacked_symbols())
            stack.enter_context(numbers)
            if self._bodies:
                stack.enter_context(replace_attribute(torch, "compile", _uncompiled))
            asks_device = run != self._run_program or torch.ops.higher_order.wrap_with_autocast in self._higher_order
            with OnMeta(self._device) if on_meta and self._device and asks_device else nullcontext():
                results = run(*inputs, weights)
            leaves = pytree.tree_leaves(pytree.tree_map_only(torch.Tensor, numbers.placed, results))
            values = [leaf for leaf in leaves if isinstance(leaf, (torch.Tensor, int, float))]
            shapes, identities = list(map(numbers.shape, values)), list(map(numbers.result, values))
        return (
            shapes,
            [*identities, *numbers.conditions],
            {name: numbers.versions.get(storage) for name, storage in storages.items()},
        )

    def compare_numbers(self, args: Any, kwargs: Any) -> Outcome:
        """Returns how the results of both compare for real arguments.

        They are unknown if the module has no values, has weights above 1 GB, or calls an operator with bodies, which
        torch compiles outside of a capture, or is of TorchScript; and if the results are empty.
        """
        self.seen = ""
        try:
            want = self._results_of_numbers(self._run_module, args, kwargs)
        except Exception as error:  # the forward is the user's code
            return self._failed(error, _raised(error), Outcome.RAISES)
        try:
            got = self._results_of_numbers(self._run_program, args, kwargs)
        except Exception as error:  # an operator of the program refuses the sizes
            return self._failed(error, PROGRAM_FAILS, Outcome.DIFFERENT)
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        is_full = all(tensor.numel() for tensor in tensors)
        if is_full and self._selects_by_values and not any(tensor.numel() for tensor in want):
            return Outcome.UNKNOWN  # the data left no element to compare
        self.seen = _difference(got, want, _problem)
        return Outcome.DIFFERENT if self.seen else Outcome.EQUAL

    def _results_of_numbers(self, run: Callable[..., Any], args: Any, kwargs: Any, seed: int = 0) -> list[torch.Tensor]:
        """Returns the results of a run in eager mode, and the weights and buffers that it has written."""
        weights = {} if self._model is None else _weights(self._model)
        size = sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in weights.values()}.values())
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs, weights)) if isinstance(leaf, torch.Tensor)]
        has_numbers = not any(isinstance(tensor, FakeTensor) or tensor.is_meta for tensor in tensors)
        if self._model is None or size > _LARGE or self._is_loop_of_script or not has_numbers:
            raise Undecidable
        no_compiler = replace_attribute(torch, "compile", _refuse) if self._bodies else nullcontext()
        with no_compiler, random_numbers_of(self._program, seed), torch.no_grad():
            copies = _separate(weights, torch.clone)
            states = {name: (tensor._version, storage_id(tensor)) for name, tensor in copies.items()}
            given = pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
            leaves = pytree.tree_leaves(run(given[0], given[1], copies))
        written = (tensor for name, tensor in copies.items() if (tensor._version, storage_id(tensor)) != states[name])
        results = [*(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), *written]
        if any(isinstance(tensor, FakeTensor) or tensor.is_meta for tensor in results):  # the trace has left a tensor
            raise Undecidable
        return results

    @property
    def _is_loop_of_script(self) -> bool:
        """Whether control flow is that of TorchScript, whose loops may not end for other numbers."""
        modules = () if self._model is None else self._model.modules()
        return bool(self._bodies) and any(isinstance(module, torch.jit.ScriptModule) for module in modules)

    @cached_property
    def _bodies(self) -> set[Any]:
        """The operators of the program with bodies, which torch compiles outside of a capture."""
        return {operator for operator in self._higher_order if not str(operator).startswith("wrap_")}

    @cached_property
    def _higher_order(self) -> set[Any]:
        """Those, and the operators of regions, such as ``wrap_with_autocast``."""
        return {node.target for node in self.nodes if isinstance(node.target, HigherOrderOperator)}

    @property
    def _branches(self) -> Sequence[bool]:
        """The branches to compare: both, if the program has conditions on data."""
        return (True, False) if torch.ops.higher_order.cond in self._bodies else (True,)

    @cached_property
    def _selects_by_values(self) -> bool:
        """Whether a size of the program depends on values of inputs or weights, and not on their sizes alone."""
        given = set[torch.fx.Node]()
        for node in self.nodes:
            depends = node.op != "call_function" or not given.isdisjoint(node.all_input_nodes)
            if depends and isinstance(node.meta.get("val"), torch.Tensor):
                given.add(node)
        return any(node in given and node.meta.get("unbacked_bindings") for node in self.nodes)

    @cached_property
    def data_sizes(self) -> set[sympy.Expr]:
        """The sizes of tensors of the program that depend on data, or did before these were compared."""
        values = (node.meta.get("val") for node in self.nodes)
        sizes = (size for value in values if isinstance(value, torch.Tensor) for size in value.shape)
        return set(filter(is_data_dependent, (as_made(size) for size in sizes if isinstance(size, torch.SymInt))))

    @cached_property
    def nodes(self) -> list[torch.fx.Node]:
        """The nodes of the program and of the bodies of its control flow."""
        return list(nodes_of(self._program))

    def _run_module(self, args: Any, kwargs: Any, weights: Mapping[str, Any]) -> Any:
        try:
            return self._call_module(args, kwargs, weights)
        finally:
            if self.state is not None:
                self.state.restore()

    def _call_module(self, args: Any, kwargs: Any, weights: Mapping[str, Any]) -> Any:
        model: Any = self._model
        return torch.func.functional_call(model, dict(weights), args, kwargs, tie_weights=False)

    def _run_program(self, args: Any, kwargs: Any, weights: Mapping[str, Any]) -> Any:
        leaves = iter(pytree.tree_leaves((args, kwargs)))
        values = [
            next(leaves) if spec.kind == InputKind.USER_INPUT
            else weights.get(spec.target, self._program.constants.get(spec.target, node.meta.get("val")))
            for node, spec in self._inputs
        ]  # fmt: skip
        others = self.others if self._chosen is not None else None
        interpreter = GraphInterpreter(self._program.graph_module, _are_empty(values), others, self.copies)
        self.sizes = interpreter.sizes
        return interpreter.run(*values)


def compare_results(got: Any, want: Any) -> Outcome:
    """Compares what ``PairedRuns.call`` returned for two calls; an exception is no result."""
    if isinstance(got, tuple) and isinstance(want, tuple):
        return Outcome.EQUAL if got == want else Outcome.RENUMBERED if got[0] == want[0] else Outcome.DIFFERENT
    if isinstance(got, type) or isinstance(want, type):
        return Outcome.EQUAL if got is want else Outcome.DIFFERENT
    return Outcome.DIFFERENT if _difference(got, want, _problem) else Outcome.EQUAL


def _uncompiled(function: Any, **_: Any) -> Any:
    """Returns a function as it is, so that the branches of a condition run in the modes of a comparison."""
    return function


def _refuse(*_: Any, **__: Any) -> Any:
    """Refuses a compilation, which torch makes for an operator with bodies."""
    _logger.debug("the module has an operator with bodies")
    raise Undecidable


def _raised(error: Exception) -> str:
    return f"the module raises {type(error).__name__}: {' '.join(str(error).split())}"


def _difference(got: Sequence[Any], want: Sequence[Any], problem_of: Callable[[Any, Any], str]) -> str:
    """Returns which result of the program differs from that of the module, and how; empty if none does."""
    if len(got) != len(want):
        return f"the program has {len(got)} results, and the module {len(want)}"
    problems = enumerate(map(problem_of, got, want))
    return next((f"result {index}: {problem}" for index, problem in problems if problem), "")


def _problem(got: torch.Tensor, want: torch.Tensor) -> str:
    return distance_of(want, got).problem


def _other_shape(got: Any, want: Any) -> str:
    return "" if got == want else "the shape or the dtype is another one"


def _are_empty(values: Iterable[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and 0 in value.shape for value in values)


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict((*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)))


def _separate(weights: Mapping[str, torch.Tensor], function: Callable[..., torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns a function of each weight, so that a run that assigns to ``Tensor.data`` leaves the weights as they are.

    Tied weights stay one tensor.
    """
    made = {id(tensor): function(tensor).requires_grad_(tensor.requires_grad) for tensor in weights.values()}
    return {name: made[id(tensor)] for name, tensor in weights.items()}
