"""Runs the ONNX program and the PyTorch module side by side: on copies of the same arguments, with paired results.

Everything that compares a program with a module runs them here: ``verify``, the search for the cause of a difference,
and the functions of ``torch.onnx.verification``.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.capture.patches.weight_values import is_written
from fx_onnx.capture.python_values import PythonState
from fx_onnx.extension_points import rooms
from fx_onnx.messages.errors import VerificationError
from fx_onnx.onnx_model.metadata import OUTPUT_TARGET
from fx_onnx.onnx_model.weights import has_storage
from fx_onnx.program.input_binding import bind, user_inputs, user_leaves
from fx_onnx.program.session import LoadedModel, flatten_outputs
from fx_onnx.requests.scripts import is_script
from fx_onnx.requests.user_outputs import result_specs
from fx_onnx.sizes.dim_table import DimTable
from fx_onnx.torch_internals.operators import nodes_of
from fx_onnx.torch_internals.random_state import random_numbers_of
from fx_onnx.torch_internals.threads import CAPTURE_LOCK
from fx_onnx.torch_internals.torch_private import HigherOrderOperator, pytree, storage_id
from fx_onnx.verification.tensor_comparison import Difference, Tolerance, differences_of

__all__ = [
    "Pair",
    "Program",
    "Sample",
    "Sides",
    "attempt",
    "copied",
    "expected_outputs",
    "lifted_arguments",
    "onnx_runner",
]

Result = TypeVar("Result")

Pair = tuple[str, Any, torch.Tensor]
"""The name of an output, the value of the module and the value of the program."""

Outputs = tuple[list[Any], dict[str, Any]]
"""The results of a module, and the new values of its arguments and buffers by name."""


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


@dataclass(frozen=True)
class Sample:
    """The arguments of one comparison and its results.

    Attributes:
        args: the positional arguments.
        kwargs: the keyword arguments.
        pairs: the outputs of both sides.
        outputs: their differences.
        sizes: the sizes of the dims as text; empty for the given arguments.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    pairs: Sequence[Pair]
    outputs: tuple[Difference, ...]
    sizes: str = ""

    @property
    def ok(self) -> bool:
        """True if all outputs agree."""
        return all(output.ok for output in self.outputs)


class Sides:
    """A program and a module, which run on the same arguments.

    Attributes:
        program: the ONNX program.
        module: the module to compare with.
        compared: what this is, for a sentence.
        tolerance: the allowed differences.
        provider: the execution provider.
    """

    def __init__(
        self,
        program: Program,
        module: Callable[..., Any] | None = None,
        tolerance: Tolerance | None = None,
        provider: str | None = None,
        run: Callable[..., tuple[torch.Tensor, ...]] | None = None,
    ) -> None:
        """Takes a program and a module; None is the module of the captured program.

        ``run`` computes the outputs of the program; None is ONNX Runtime with the provider.
        """
        self.program, self.tolerance, self.provider = program, tolerance or Tolerance(), provider
        self.module: Callable[..., Any] = module or self.captured  # type: ignore[assignment]
        self.compared = "the captured program" if module is None else "the module"
        self._run = run or onnx_runner(program, provider)

    @functools.cached_property
    def captured(self) -> Callable[..., Any] | None:
        """The captured program as a module; None if the program has none."""
        return None if self.program.exported_program is None else self.program.exported_program.module()

    def sample(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        sizes: str = "",
        expected: Outputs | None = None,
        actual: Sequence[torch.Tensor] | None = None,
    ) -> Sample:
        """Compares the outputs of both sides, which run unless their outputs are given.

        Raises:
            VerificationError: the program returns fewer outputs than the module.
        """
        actual = self.actual(args, kwargs) if actual is None else actual
        results, state = expected or self.expected(args, kwargs)
        if len(results) > len(actual):
            raise VerificationError(
                f"The module returns {len(results)} values, the ONNX program {len(actual)}; give verify() the module "
                "that was exported."
            )
        named = self._named(results, state)
        names = [str(value.name) for value in self.program.model.graph.outputs]
        pairs = [(name, named[name], value) for name, value in zip(names, actual, strict=False) if name in named]
        return Sample(args, kwargs, pairs, tuple(differences_of(pairs, self.tolerance)), sizes)

    def expected(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], module: Callable[..., Any] | None = None
    ) -> Outputs:
        """Returns the results of a module and the new values of what it writes; None is the module to compare with."""
        return expected_outputs(self.program.exported_program, args, kwargs, module or self.module)

    def actual(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Returns the outputs of the program."""
        return self._run(*copied(args), **copied(kwargs))

    def differences(self, sample: Sample, named: Mapping[str, Any]) -> list[Difference]:
        """Returns the differences of other outputs, by name, from the module's in a sample."""
        pairs = [(name, expected, named[name]) for name, expected, _ in sample.pairs if name in named]
        return differences_of(pairs, self.tolerance)

    def results_of(self, sample: Sample, module: Callable[..., Any]) -> dict[str, Any]:
        """Returns the results of another module on the arguments of a sample, by the names of the outputs."""
        return self._named(*self.expected(sample.args, sample.kwargs, module))

    def _named(self, results: Sequence[Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the results and the new values of a module by the names of the outputs of the program."""
        outputs = self.program.model.graph.outputs
        named = {str(value.name): result for value, result in zip(outputs, results, strict=False)}
        # The graph returns the new values of buffers and inputs after the user's outputs.
        for value in outputs[len(results) :]:
            target = value.metadata_props.get(OUTPUT_TARGET, "")
            if target in state:
                named[str(value.name)] = state[target]
        return named


def expected_outputs(
    exported: ExportedProgram | None, args: Sequence[Any], kwargs: Mapping[str, Any], module: Callable[..., Any]
) -> Outputs:
    """Returns the results of the module, and the new values of its arguments and buffers by name.

    Raises:
        VerificationError: the module returns another number of values than the captured program.
    """
    args, kwargs = copied((args, kwargs))
    # torch.cond compiles while it runs eagerly.
    state = _written(module, exported)
    with CAPTURE_LOCK, torch.no_grad(), _restored_state(module, state.values()), random_numbers_of(exported):
        given = _inputs_by_name(exported, args, kwargs)
        result = copied(module(*args, **kwargs))
        state = copied({**given, **state, **_buffers(module)})
    if exported is not None:
        captured = len(result_specs(exported))
        returned = len(pytree.tree_leaves(result))
        if captured != returned:
            raise VerificationError(
                f"The module returns {returned} values, but its capture {captured}; compare with the exported "
                "module, and look for code that acts differently while it is exported."
            )
    return flatten_outputs(exported, result), state


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
    origins = getattr(program, "_origins", None)
    loaded = LoadedModel(program.model, provider=provider, optimized=optimized, origins=origins)
    return lambda *args, **kwargs: loaded.run(bind(program.model.graph, program.exported_program, args, kwargs))


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
    leaves = attempt(lambda: user_leaves(program, args, kwargs))
    if isinstance(leaves, Exception):  # the inputs themselves, in order
        leaves = [] if kwargs else pytree.tree_leaves(args)
    names = [spec.name for spec in user_inputs(program)]
    named = zip(names, leaves, strict=True) if len(names) == len(leaves) else ()
    return {name: leaf for name, leaf in named if isinstance(leaf, torch.Tensor)}


def _buffers(module: Callable[..., Any]) -> dict[str, torch.Tensor]:
    return dict(module.named_buffers(remove_duplicate=False)) if isinstance(module, torch.nn.Module) else {}


def _written(module: Callable[..., Any], exported: ExportedProgram | None) -> dict[str, torch.Tensor]:
    """Returns the buffers of a module, and the parameters into which its captured program writes."""
    if not isinstance(module, torch.nn.Module):
        return {}
    names = () if exported is None else _written_weights(exported)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return {**_buffers(module), **{name: parameters[name] for name in names if name in parameters}}


def _written_weights(exported: ExportedProgram) -> set[str | None]:
    """Returns the names of the parameters and buffers into which a captured program writes, or its regions may."""
    schemas = (getattr(node.target, "_schema", None) for node in nodes_of(exported) if node.graph is not exported.graph)
    regions_write = any(schema is not None and schema.is_mutable for schema in schemas)

    def may_be_written(node: torch.fx.Node) -> bool:
        in_region = regions_write and any(isinstance(user.target, HigherOrderOperator) for user in node.users)
        return in_region or is_written(node)

    written = {node.name for node in exported.graph.find_nodes(op="placeholder") if may_be_written(node)}
    return {spec.target for spec in exported.graph_signature.input_specs if spec.arg.name in written}


@contextmanager
def _restored_state(module: Callable[..., Any], written: Iterable[torch.Tensor]) -> Iterator[None]:
    """Restores tensors of the module at the end, and its Python values at any depth; also what its forward assigns.

    Of a TorchScript module these are numbers and texts.
    """
    if not isinstance(module, torch.nn.Module):
        yield
        return
    state = PythonState(module)
    before = [(tensor, tensor.detach().clone()) for tensor in written]
    scripts = [
        (owner, name, getattr(owner, name))
        for owner in filter(is_script, module.modules())
        for name in (*dict(owner.named_buffers("", False)), *rooms.find("models", "attributes of TorchScript")(owner))
    ]
    try:
        yield
    finally:
        state.restore()
        for tensor, values in before:
            tensor.copy_(values)
        for owner, name, old in scripts:
            if isinstance(old, int | float | str | torch.Tensor | None) and getattr(owner, name, owner) is not old:
                setattr(owner, name, old)


# ---------------------------------------------------------------- the arguments of the captured graph


def lifted_arguments(exported: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
    """Returns the arguments of the FX graph: weights, buffers and constants, then the user's arguments.

    All except parameters that it does not write to are copied.
    """
    user = iter(user_leaves(exported, args, kwargs or {}))
    values, written = list[Any](), _written_weights(exported)
    for spec in exported.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT or spec.target is None:
            values.append(copied(next(user)))
        else:
            state = exported.state_dict if spec.target in exported.state_dict else exported.constants
            value = state[spec.target]
            is_kept = spec.kind == InputKind.PARAMETER and spec.target not in written
            values.append(value if is_kept else copied(value))
    return values
