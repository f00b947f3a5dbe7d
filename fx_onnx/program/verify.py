"""Compares an ONNX program with the PyTorch module on the same inputs: by output, by FX value, or by module."""

from __future__ import annotations

import ast
import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import onnx
import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.core.arguments import shown
from fx_onnx.core.errors import ArgumentError, CheckerError, VerificationError
from fx_onnx.core.metadata import NAME_SCOPES, ORIGINAL_NODE_NAME, OUTPUT_TARGET, of_fx_node
from fx_onnx.core.threads import CAPTURE_LOCK
from fx_onnx.core.torch_private import pytree, storage_id
from fx_onnx.core.weights import is_subclass
from fx_onnx.program.session import call_arguments, flatten_outputs

__all__ = [
    "Difference",
    "Verification",
    "by_module",
    "check_model",
    "compare",
    "compare_values",
    "first_difference",
    "lifted_arguments",
    "output_pairs",
    "verify",
    "visit_values",
]

RELATIVE_TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-6,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""The largest allowed difference, relative to the largest expected magnitude. Integers and booleans must be equal."""
FLOAT8_TOLERANCE = 0.25
ABSOLUTE_TOLERANCE = 1e-7
"""Added to the tolerance of floats, because an output of zeros has no magnitude to be relative to."""


class Program(Protocol):
    """The part of ONNXProgram that verification uses.

    This module cannot import ONNXProgram, because onnx_program.py imports report.py, which imports this module.
    """

    exported_program: ExportedProgram | None

    @property
    def model(self) -> ir.Model: ...

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]: ...

    def compute_values(
        self, value_names: Sequence[str], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> tuple[torch.Tensor, ...]: ...


@dataclass(frozen=True)
class Difference:
    """The difference between one value of the ONNX program and of the PyTorch module.

    Attributes:
        name: the name of the ONNX value.
        dtype: the dtype of the PyTorch value, for example ``float32``.
        shape: the shape of the PyTorch value.
        max_abs: the largest absolute difference of finite elements; inf if the shapes differ.
        max_rel: ``max_abs`` divided by the largest finite magnitude of the PyTorch value.
        nonfinite: how many elements are NaN or infinite on one side only, or infinite with different signs.
        tolerance: the allowed absolute difference.
        problem: why the values do not agree, as text; empty if they agree.
        module: the path of the module that computed the value; empty for the root module and for outputs.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    nonfinite: int
    tolerance: float
    problem: str
    module: str = ""

    @property
    def ok(self) -> bool:
        """True if the values agree."""
        return not self.problem


@dataclass(frozen=True)
class Verification:
    """The result of ``verify``.

    Attributes:
        outputs: the differences of all outputs, in order.
    """

    outputs: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """True if all outputs agree."""
        return all(output.ok for output in self.outputs)

    @property
    def max_rel(self) -> float:
        """The largest ``max_rel`` of all outputs."""
        return max((output.max_rel for output in self.outputs), default=0.0)

    def check(self) -> None:
        """Raises VerificationError if an output differs. The message lists all outputs that differ."""
        bad = [f"{output.name!r}: {output.problem}" for output in self.outputs if not output.ok]
        if bad:
            raise VerificationError(f"The ONNX program differs from the PyTorch module in {'; '.join(bad)}.")


def check_model(program: Program) -> None:
    """Checks the model with ONNX's checker and shape inference. Large weights are not serialized for this.

    Raises:
        CheckerError: the model is not valid ONNX. The message contains the first line of the checker's message.
    """
    proto = ir.serde.serialize_model(_without_weights(program.model))
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise CheckerError(f"The model is not valid ONNX: {str(error).strip().splitlines()[0]}") from error


def _without_weights(model: ir.Model) -> ir.Model:
    """Returns a copy whose larger weights are inputs.

    The checker needs their types and shapes only, and a protobuf message is limited to 2 GB.
    """
    model = model.clone()
    for value in list(model.graph.initializers.values()):
        if value.const_value is not None and value.const_value.nbytes > 1024:
            del model.graph.initializers[str(value.name)]
            if not value.is_graph_input():
                model.graph.inputs.append(value)
    return model


def verify(
    program: Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    module: Callable[..., Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> Verification:
    """Compares the outputs of the ONNX program with the outputs of the PyTorch module.

    Args:
        program: the ONNXProgram.
        args: the module's positional arguments. Both sides get copies, because they may write to them.
        kwargs: the module's keyword arguments.
        module: the module to compare with; by default the module of the exported program. Its buffers are restored. The
            new values of buffers are compared if it is a Module.
        rtol: the allowed difference relative to the largest magnitude of the output. The default depends on the dtype:
            1e-6 for float64, 1e-4 for float32, 1e-2 for float16, 5e-2 for bfloat16, 0.25 for 8-bit floats.
        atol: the allowed absolute difference, which is added to the relative one; by default 1e-7 for floats.

    Returns:
        The differences of all outputs: the results of the module, then the new values of the buffers and arguments that
        it writes. Call its ``check()`` to raise an error if one differs.

    Raises:
        ArgumentError: there is no module to compare with, or the arguments do not fit.
        VerificationError: the program returns fewer outputs than the module.
    """
    if not hasattr(program, "exported_program"):
        raise ArgumentError(f"verify() needs an ONNXProgram, not {shown(program)}.")
    args, kwargs = call_arguments(args, kwargs)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and not (isinstance(tolerance, (int, float)) and tolerance >= 0):
            raise ArgumentError(f"{name} must be a number that is not negative, not {shown(tolerance)}.")
    if module is not None and not callable(module):
        raise ArgumentError(f"module must be a module or a function, not {shown(module)}.")
    if module is None:
        if program.exported_program is None:
            raise ArgumentError("The program has no exported_program to compare with; give verify() a module.")
        module = program.exported_program.module()
    pairs = output_pairs(program, args, kwargs, module)
    return Verification(tuple(compare(*pair, rtol=rtol, atol=atol) for pair in pairs))


def output_pairs(
    program: Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    module: Callable[..., Any],
    run: Callable[..., tuple[torch.Tensor, ...]] | None = None,
) -> list[tuple[str, Any, torch.Tensor]]:
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
    found = (run or program)(*_copied(args), **_copied(kwargs))
    args, kwargs = _copied((args, kwargs))
    with CAPTURE_LOCK, torch.no_grad(), _restored_buffers(module):  # torch.cond compiles while it runs eagerly
        given = _inputs_by_name(program.exported_program, args, kwargs)
        result = module(*args, **kwargs)
        expected = flatten_outputs(program.exported_program, _copied(result))
        state = _copied({**given, **_buffers(module)})
    if len(expected) > len(found):
        raise VerificationError(f"The module returns {len(expected)} values, the ONNX program {len(found)}.")
    outputs = program.model.graph.outputs
    pairs = [(str(value.name), *each) for value, *each in zip(outputs, expected, found, strict=False)]
    # The graph returns the new values of buffers and inputs after the user's outputs.
    for value, new in zip(outputs[len(expected) :], found[len(expected) :], strict=True):
        target = value.metadata_props.get(OUTPUT_TARGET)
        if target in state:
            pairs.append((str(value.name), state[target], new))
    return pairs


def _copied(tree: Any) -> Any:
    """Returns the structure with a detached copy of each tensor. Tensors that share memory still share it."""
    leaves = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    count, memo = Counter(storage_id(leaf) for leaf in leaves if _has_storage(leaf)), dict[int, Any]()

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        if _has_storage(tensor) and count[storage_id(tensor)] > 1:
            shared: torch.Tensor = copy.deepcopy(tensor.detach(), memo)
            return shared
        return tensor.detach().clone()

    return pytree.tree_map_only(torch.Tensor, copied, tree)


def _has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not is_subclass(tensor)


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


# One value


def compare(
    name: str,
    expected: Any,
    found: torch.Tensor,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    module: str = "",
) -> Difference:
    """Compares one value.

    Args:
        name: the name for the result.
        expected: the tensor or number of PyTorch. A complex tensor is compared as its real view if ``found`` is real.
        found: the tensor of the ONNX program.
        rtol: the relative tolerance, as for verify().
        atol: the absolute tolerance, as for verify().
        module: the path of the module that computed the value.
    """
    if not isinstance(expected, torch.Tensor):
        expected = torch.as_tensor(expected, dtype=found.dtype)
    expected = expected.detach().cpu()
    if expected.is_complex() and not found.is_complex():
        expected = torch.view_as_real(expected.resolve_conj())
    dtype, shape = str(expected.dtype).removeprefix("torch."), tuple(expected.shape)
    if tuple(found.shape) != shape:
        problem = f"the shape is {list(found.shape)} instead of {list(shape)}"
        return Difference(name, dtype, shape, math.inf, math.inf, 0, 0.0, problem, module)
    max_abs, scale, nonfinite = _distance(expected, found)
    tolerance = _tolerance(expected.dtype, scale, rtol, atol)
    max_rel = max_abs / scale if scale else (0.0 if max_abs == 0 else math.inf)
    if found.dtype != expected.dtype:
        problem = f"the dtype is {str(found.dtype).removeprefix('torch.')} instead of {dtype}"
    elif nonfinite:
        problem = f"{nonfinite} elements are NaN or infinite on one side only, or infinite with different signs"
    elif max_abs > tolerance:
        problem = f"the largest difference is {max_abs:.3g}, but at most {tolerance:.3g} is allowed"
    else:
        problem = ""
    return Difference(name, dtype, shape, max_abs, max_rel, nonfinite, tolerance, problem, module)


def _tolerance(dtype: torch.dtype, scale: float, rtol: float | None, atol: float | None) -> float:
    """Returns the allowed absolute difference for values of this scale, the largest expected magnitude."""
    inexact = dtype.is_floating_point or dtype.is_complex
    relative = RELATIVE_TOLERANCE.get(dtype.to_real(), FLOAT8_TOLERANCE) if inexact else 0.0
    absolute = ABSOLUTE_TOLERANCE if inexact else 0.0
    return (absolute if atol is None else atol) + (relative if rtol is None else rtol) * scale


def _distance(expected: torch.Tensor, found: torch.Tensor) -> tuple[float, float, int]:
    """Returns the largest difference and the largest expected magnitude of finite elements, and a count.

    The count is the number of elements that are not finite on at least one side and that differ.
    """
    wide = torch.complex128 if expected.is_complex() or found.is_complex() else torch.float64
    left, right = expected.to(wide), found.to(wide)
    finite = left.isfinite() & right.isfinite()
    same = (left == right) | (left.isnan() & right.isnan())
    nonfinite = int((~finite & ~same).sum())
    if not bool(finite.any()):
        return 0.0, 0.0, nonfinite
    difference = torch.where(finite, left - right, 0).abs().max().item()
    if not difference and not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        difference = float(bool((expected != found).any()))  # float64 rounds large 64-bit integers to equal numbers
    return difference, torch.where(left.isfinite(), left, 0).abs().max().item(), nonfinite


# Every value


def compare_values(
    program: Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> tuple[Difference, ...]:
    """Compares the value of each FX node with the ONNX value of the same name, in the order of execution.

    It keeps all values in memory at once, so use it to find an error, not to check every export. Values that the
    optimizer removed are not compared.

    Args:
        program: an ONNXProgram with an exported_program.
        args: the module's positional arguments.
        kwargs: the module's keyword arguments.
        rtol: the relative tolerance, as for verify().
        atol: the absolute tolerance, as for verify().

    Raises:
        ArgumentError: the program has no exported_program, or the arguments do not fit.
    """
    differences: list[Difference] = []

    def add(name: str, expected: Any, found: torch.Tensor, node: torch.fx.Node) -> None:
        differences.append(compare(name, expected, found, rtol=rtol, atol=atol, module=_module_path(node)))

    visit_values(program, args, kwargs, add)
    return tuple(differences)


def visit_values(
    program: Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    visit: Callable[[str, Any, torch.Tensor, torch.fx.Node], None],
) -> None:
    """Calls ``visit`` for each FX node whose value the ONNX program has too, in the order of execution.

    Args:
        program: as for compare_values().
        args: as for compare_values().
        kwargs: as for compare_values().
        visit: takes the name of the ONNX value, the value of PyTorch, the value of the ONNX program and the FX node.

    Raises:
        ArgumentError: the program has no exported_program, or the arguments do not fit.
    """
    exported = program.exported_program
    if exported is None:
        raise ArgumentError("The program has no exported_program, so it has no FX values to compare with.")
    lifted = lifted_arguments(exported, args, kwargs)
    computed = {node.name for node in exported.graph.nodes if node.op == "call_function"}
    names = {fx: name for fx, name in _fx_names(program.model.graph) if fx in computed}
    found = program.compute_values(list(names.values()), args, kwargs)
    values = {fx: (name, value) for (fx, name), value in zip(names.items(), found, strict=True)}

    class Visiting(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            if n.name in values and isinstance(result, (torch.Tensor, int, float, bool)):
                name, value = values[n.name]
                visit(name, result, value, n)
            return result

    with torch.no_grad():
        Visiting(exported.graph_module).run(*lifted)


def first_difference(
    program: Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> Difference | None:
    """Returns the first value, in the order of execution, that differs; None if all values agree."""
    differences = compare_values(program, args, kwargs, rtol=rtol, atol=atol)
    return next((difference for difference in differences if not difference.ok), None)


def by_module(differences: Iterable[Difference]) -> dict[str, Difference]:
    """Returns the worst difference of each module, by module path, in the order of execution."""
    worst: dict[str, Difference] = {}
    for difference in differences:
        known = worst.get(difference.module)
        if known is None or (known.ok, -known.max_rel) > (difference.ok, -difference.max_rel):
            worst[difference.module] = difference
    return worst


def _fx_names(graph: ir.Graph) -> Iterator[tuple[str, str]]:
    """Yields the FX name and the ONNX name of each value of the main graph."""
    for node in graph:
        for value in node.outputs:
            if value.name:
                yield value.metadata_props.get(ORIGINAL_NODE_NAME, value.name), value.name


def _module_path(node: torch.fx.Node) -> str:
    """Returns the path of the module that contains the FX node; empty for the root module."""
    scopes: list[str] = ast.literal_eval(of_fx_node(node)[NAME_SCOPES])  # module paths, then the name of the node
    return scopes[-2] if len(scopes) > 1 else ""


def lifted_arguments(exported: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
    """Returns the arguments of the FX graph: weights, buffers and constants, then the user's arguments.

    All except parameters are copied, because the graph may write to them.
    """
    try:
        user = iter(exported.call_spec.in_spec.flatten_up_to((tuple(args), dict(kwargs or {}))))
    except ValueError as error:
        raise ArgumentError(
            f"The arguments do not have the structure with which the model was exported: {error}"
        ) from error
    values: list[Any] = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT or spec.target is None:
            values.append(_copied(next(user)))
        else:
            state = exported.state_dict if spec.target in exported.state_dict else exported.constants
            value = state[spec.target]
            values.append(value if spec.kind == InputKind.PARAMETER else _copied(value))
    return values
