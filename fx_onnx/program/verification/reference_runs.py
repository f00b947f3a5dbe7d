"""Runs the ONNX program and the PyTorch module on copies of the same arguments, and pairs their results."""

from __future__ import annotations

import copy
import functools
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.core.dim_table import DimTable
from fx_onnx.core.errors import VerificationError
from fx_onnx.core.metadata import OUTPUT_TARGET
from fx_onnx.core.threads import CAPTURE_LOCK
from fx_onnx.core.torch_private import pytree, storage_id
from fx_onnx.core.user_outputs import result_specs
from fx_onnx.core.weights import has_storage
from fx_onnx.program.input_binding import bind, wrong_structure
from fx_onnx.program.runtime_errors import explain_runtime_errors
from fx_onnx.program.session import (
    flatten_outputs,
    load,
    refuse_fallback,
    run_session,
)

__all__ = [
    "Pair",
    "Program",
    "attempt",
    "copied",
    "expected_outputs",
    "lifted_arguments",
    "named_outputs",
    "onnx_runner",
    "output_pairs",
    "pair_outputs",
    "user_leaves",
]

Result = TypeVar("Result")

Pair = tuple[str, Any, torch.Tensor]
"""The name of an output, the value of the module and the value of the program."""


class Program(Protocol):
    """The part of ONNXProgram that verification uses.

    This folder cannot import ONNXProgram, because onnx_program.py imports verify.py, which imports this folder.
    """

    exported_program: ExportedProgram | None
    dims: DimTable
    state: dict[str, torch.Tensor] | None

    @property
    def model(self) -> ir.Model: ...

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]: ...

    def compute_values(
        self, value_names: Sequence[str], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> tuple[torch.Tensor, ...]: ...


def output_pairs(
    program: Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    module: Callable[..., Any],
    run: Callable[..., tuple[torch.Tensor, ...]] | None = None,
) -> list[Pair]:
    """Returns the name, the value of the module and the value of the program of each output.

    The new values of buffers and arguments come after the results of the module, as among the outputs of the program.

    Args:
        program: as for verify().
        args: as for verify().
        kwargs: as for verify().
        module: as for verify().
        run: computes the outputs of the program; None calls the program.

    Raises:
        VerificationError: the program returns fewer outputs than the module.
    """
    found = (run or program)(*copied(args), **copied(kwargs))
    results, state = expected_outputs(program.exported_program, args, kwargs, module)
    return pair_outputs(program, results, state, found)


def expected_outputs(
    exported: ExportedProgram | None, args: Sequence[Any], kwargs: Mapping[str, Any], module: Callable[..., Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Returns the results of the module, and the new values of its arguments and buffers by name.

    Raises:
        VerificationError: the module returns another number of values than the captured program.
    """
    args, kwargs = copied((args, kwargs))
    # torch.cond compiles while it runs eagerly. A model in training mode draws random numbers.
    with CAPTURE_LOCK, torch.no_grad(), _restored_buffers(module), torch.random.fork_rng(devices=[]):
        given = _inputs_by_name(exported, args, kwargs)
        result = copied(module(*args, **kwargs))
        state = copied({**given, **_buffers(module)})
    if exported is not None:
        captured = len(result_specs(exported))
        returned = len(pytree.tree_leaves(result))
        if captured != returned:
            raise VerificationError(f"The module returns {returned} values, but its capture {captured}.")
    return flatten_outputs(exported, result), state


def pair_outputs(
    program: Program, results: Sequence[Any], state: Mapping[str, Any], found: Sequence[torch.Tensor]
) -> list[Pair]:
    """Returns the pairs of the module's results and new values with the outputs of the program.

    Raises:
        VerificationError: the program returns fewer outputs than the module.
    """
    if len(results) > len(found):
        raise VerificationError(f"The module returns {len(results)} values, the ONNX program {len(found)}.")
    named = named_outputs(program, results, state)
    names = [str(value.name) for value in program.model.graph.outputs]
    return [(name, named[name], value) for name, value in zip(names, found, strict=False) if name in named]


def named_outputs(program: Program, results: Sequence[Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the results and the new values of a module by the names of the outputs of the program."""
    outputs = program.model.graph.outputs
    named = {str(value.name): result for value, result in zip(outputs, results, strict=False)}
    # The graph returns the new values of buffers and inputs after the user's outputs.
    for value in outputs[len(results) :]:
        target = value.metadata_props.get(OUTPUT_TARGET, "")
        if target in state:
            named[str(value.name)] = state[target]
    return named


def onnx_runner(
    program: Program, provider: str | None = None, *, optimized: bool = True
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Returns a function that computes the outputs of the program from the buffers of the export.

    Args:
        program: the program.
        provider: the execution provider; None uses the session of the program.
        optimized: whether ONNX Runtime optimizes the graph.

    Raises:
        ArgumentError: this ONNX Runtime does not have the provider.
    """
    if provider is None and optimized:
        return functools.partial(_without_state, program)
    refuse_fallback(program.model)
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # the session may map a file in it
    with explain_runtime_errors(program.model, getattr(program, "_origins", None)):
        session = load(program.model, Path(folder.name), provider, optimized=optimized)

    def run(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        inputs = bind(program.model.graph, program.exported_program, args, kwargs)
        with explain_runtime_errors(program.model, is_loaded=True):
            return run_session(session, inputs)

    weakref.finalize(run, folder.cleanup)
    return run


def _without_state(program: Program, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    """Calls the program without the buffers that its last call left."""
    state, program.state = program.state, None
    try:
        return program(*args, **kwargs)
    finally:
        program.state = state


def attempt(call: Callable[[], Result]) -> Result | Exception:
    """Returns the result of a call that runs the user's module or ONNX Runtime, or the error that it raises.

    Such errors have no common base class, and verification must not fail with them.
    """
    try:
        return call()
    except Exception as error:
        return error


def copied(tree: Any) -> Any:
    """Returns the structure with a detached copy of each tensor. Tensors that share memory still share it."""
    leaves = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    count, memo = Counter(storage_id(leaf) for leaf in leaves if has_storage(leaf)), dict[int, Any]()

    def one(tensor: torch.Tensor) -> torch.Tensor:
        if has_storage(tensor) and count[storage_id(tensor)] > 1:
            shared: torch.Tensor = copy.deepcopy(tensor.detach(), memo)
            return shared
        return tensor.detach().clone()

    return pytree.tree_map_only(torch.Tensor, one, tree)


def _inputs_by_name(program: ExportedProgram | None, args: Any, kwargs: Any) -> dict[str, Any]:
    """Returns the tensors among the arguments by the name of their placeholder; nothing without a program."""
    if program is None or program.call_spec.in_spec is None:
        return {}
    try:
        leaves = program.call_spec.in_spec.flatten_up_to((args, kwargs))
    except ValueError:  # the inputs themselves, in order
        leaves = [] if kwargs else pytree.tree_leaves(args)
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    if len(specs) != len(leaves):
        return {}
    named = {spec.arg.name: leaf for spec, leaf in zip(specs, leaves, strict=True)}
    return {name: leaf for name, leaf in named.items() if isinstance(leaf, torch.Tensor)}


def _buffers(module: Callable[..., Any]) -> dict[str, torch.Tensor]:
    return dict(module.named_buffers(remove_duplicate=False)) if isinstance(module, torch.nn.Module) else {}


@contextmanager
def _restored_buffers(module: Callable[..., Any]) -> Iterator[None]:
    """Restores the buffers of the module at the end, also those that its forward assigns."""
    modules = list(module.modules()) if isinstance(module, torch.nn.Module) else []
    before = [(each, key, old, old.detach().clone()) for each in modules for key, old in each.named_buffers("", False)]
    try:
        yield
    finally:
        for each, key, buffer, values in before:
            setattr(each, key, buffer.copy_(values))


# ---------------------------------------------------------------- the arguments of the captured graph


def user_leaves(exported: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
    """Returns the arguments, flattened in the order of the placeholders of the user's inputs.

    Raises:
        ArgumentError: they have another structure than those of the export.
    """
    try:
        leaves: list[Any] = exported.call_spec.in_spec.flatten_up_to((tuple(args), dict(kwargs or {})))
    except ValueError as error:
        raise wrong_structure(exported, args, kwargs or {}) from error
    return leaves


def lifted_arguments(exported: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
    """Returns the arguments of the FX graph: weights, buffers and constants, then the user's arguments.

    All except parameters are copied, because the graph may write to them.
    """
    user = iter(user_leaves(exported, args, kwargs))
    values: list[Any] = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT or spec.target is None:
            values.append(copied(next(user)))
        else:
            state = exported.state_dict if spec.target in exported.state_dict else exported.constants
            value = state[spec.target]
            values.append(value if spec.kind == InputKind.PARAMETER else copied(value))
    return values
