"""Runs the PyTorch module and the ONNX program on the same inputs: differences per output, per FX value, per module."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import onnx
import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.core.errors import ArgumentError, CheckerError, VerificationError
from fx_onnx.core.metadata import NAME_SCOPES, ORIGINAL_NODE_NAME, of_fx_node
from fx_onnx.core.torch_private import pytree
from fx_onnx.program.session import flat_outputs

__all__ = [
    "Difference",
    "Verification",
    "by_module",
    "check_model",
    "compare",
    "compare_values",
    "first_difference",
    "verify",
]

RELATIVE_TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-6,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""The largest difference allowed, as a part of the largest expected magnitude; integers and booleans are exact."""
FLOAT8_TOLERANCE = 0.25
ABSOLUTE_TOLERANCE = 1e-7
"""Added for floats, since an output of zeros has no scale."""


class Program(Protocol):
    """What is verified: an ONNXProgram, which this file comes before."""

    exported_program: ExportedProgram | None

    @property
    def model(self) -> ir.Model: ...

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]: ...

    def compute_values(
        self, value_names: Sequence[str], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> tuple[torch.Tensor, ...]: ...


@dataclass(frozen=True)
class Difference:
    """How one ONNX value differs from PyTorch's.

    Attributes:
        name: the ONNX value's name.
        dtype: what PyTorch computed, such as ``float32``.
        shape: its sizes.
        max_abs: the largest absolute difference of finite elements, 0 if all are equal; inf if shapes differ.
        max_rel: the same, divided by the largest finite magnitude PyTorch computed.
        nonfinite: how many elements are NaN or infinite on one side only, or infinite with different signs.
        tolerance: the absolute difference that was allowed.
        problem: why it is not ok, in words; empty if it is.
        module: the path of the module that computed the value; empty for the root and for outputs.
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
        """Whether the values agree."""
        return not self.problem


@dataclass(frozen=True)
class Verification:
    """The differences of all outputs, in order."""

    outputs: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """Whether every output agrees."""
        return all(output.ok for output in self.outputs)

    @property
    def max_rel(self) -> float:
        """The largest difference, as a part of its output's scale."""
        return max((output.max_rel for output in self.outputs), default=0.0)

    def check(self) -> None:
        """Raises VerificationError with every output that differs, if one does."""
        bad = [f"{output.name!r}: {output.problem}" for output in self.outputs if not output.ok]
        if bad:
            raise VerificationError(f"The ONNX program differs from the PyTorch module in {'; '.join(bad)}.")


def check_model(program: Program) -> None:
    """Holds the model against ONNX's own checker and shape inference; weights are not looked at.

    Raises:
        CheckerError: the model is not valid ONNX; the message is the checker's first line.
    """
    proto = ir.serde.serialize_model(_without_weights(program.model))
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise CheckerError(f"The model is not valid ONNX: {str(error).strip().splitlines()[0]}") from error


def _without_weights(model: ir.Model) -> ir.Model:
    """A copy whose weights are inputs: the checker wants types and shapes, and a message cannot hold large weights."""
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
    """Compares the outputs of the ONNX program with those of the PyTorch module.

    Args:
        program: the ONNXProgram.
        args: the module's positional arguments; they are copied, as either side may write to them.
        kwargs: its keyword arguments.
        module: the module to compare with; by default the exported program's. Its buffers are put back afterwards.
        rtol: allowed difference as a part of the output's largest magnitude; by default by dtype, 1e-4 for float32.
        atol: allowed absolute difference besides.

    Raises:
        ArgumentError: there is nothing to compare with, or the arguments do not fit.
    """
    if module is None:
        if program.exported_program is None:
            raise ArgumentError("A program without an exported_program can only be verified against a given module.")
        module = program.exported_program.module()
    found = program(*_copied(tuple(args)), **_copied(dict(kwargs or {})))
    with torch.no_grad(), _unchanged_buffers(module):
        result = module(*_copied(tuple(args)), **_copied(dict(kwargs or {})))
        expected = flat_outputs(program.exported_program, _copied(result))
    names = [str(value.name) for value in program.model.graph.outputs]
    if len(expected) > len(found):
        raise VerificationError(f"The module returns {len(expected)} values, the ONNX program {len(found)}.")
    triples = zip(names, expected, found, strict=False)  # state that the graph returns follows the user's outputs
    return Verification(tuple(compare(*triple, rtol=rtol, atol=atol) for triple in triples))


def _copied(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), tree)


@contextmanager
def _unchanged_buffers(module: Callable[..., Any]) -> Iterator[None]:
    buffers = list(module.buffers()) if isinstance(module, torch.nn.Module) else []
    before = [buffer.detach().clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, values in zip(buffers, before, strict=True):
            buffer.copy_(values)


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
    """The difference of one value.

    Args:
        name: what to call it.
        expected: PyTorch's tensor or number; a complex one is compared as its real view if ``found`` is real.
        found: the ONNX program's tensor.
        rtol: as for verify().
        atol: as for verify().
        module: the path of the module it belongs to.
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
        problem = f"{nonfinite} elements are NaN or infinite on one side only"
    elif max_abs > tolerance:
        problem = f"the largest difference is {max_abs:.3g}, {tolerance:.3g} is allowed"
    else:
        problem = ""
    return Difference(name, dtype, shape, max_abs, max_rel, nonfinite, tolerance, problem, module)


def _tolerance(dtype: torch.dtype, scale: float, rtol: float | None, atol: float | None) -> float:
    """The absolute difference allowed at this scale."""
    inexact = dtype.is_floating_point or dtype.is_complex
    relative = RELATIVE_TOLERANCE.get(dtype.to_real(), FLOAT8_TOLERANCE) if inexact else 0.0
    absolute = ABSOLUTE_TOLERANCE if inexact else 0.0
    return (absolute if atol is None else atol) + (relative if rtol is None else rtol) * scale


def _distance(expected: torch.Tensor, found: torch.Tensor) -> tuple[float, float, int]:
    """(largest difference, largest expected magnitude) among the finite elements, and how many disagree in being so."""
    wide = torch.complex128 if expected.is_complex() or found.is_complex() else torch.float64
    left, right = expected.to(wide), found.to(wide)
    finite = left.isfinite() & right.isfinite()
    same = (left == right) | (left.isnan() & right.isnan())
    nonfinite = int((~finite & ~same).sum())
    if not bool(finite.any()):
        return 0.0, 0.0, nonfinite
    difference = torch.where(finite, left - right, 0).abs().max().item()
    if not difference and not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        difference = float(bool((expected != found).any()))  # large 64-bit integers are alike in float64
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
    """Compares every FX node's value with the ONNX value that bears its name, in the order of execution.

    All values are held in memory at once: this is for finding a fault, not for every export. What the optimizer
    removed is not there to compare.

    Args:
        program: an ONNXProgram with an exported_program.
        args: the module's positional arguments.
        kwargs: its keyword arguments.
        rtol: as for verify().
        atol: as for verify().

    Raises:
        ArgumentError: the program has no exported_program, or the arguments do not fit.
    """
    exported = program.exported_program
    if exported is None:
        raise ArgumentError("Only a program with an exported_program has FX values to compare with.")
    lifted = _lifted(exported, args, kwargs)
    computed = {node.name for node in exported.graph.nodes if node.op == "call_function"}
    names = {fx: name for fx, name in _fx_names(program.model.graph) if fx in computed}
    found = program.compute_values(list(names.values()), args, kwargs)
    values = {fx: (name, value) for (fx, name), value in zip(names.items(), found, strict=True)}
    differences: list[Difference] = []

    class Comparing(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            if n.name in values and isinstance(result, (torch.Tensor, int, float, bool)):
                name, value = values[n.name]
                differences.append(compare(name, result, value, rtol=rtol, atol=atol, module=_module_path(n)))
            return result

    with torch.no_grad():
        Comparing(exported.graph_module).run(*lifted)
    return tuple(differences)


def first_difference(
    program: Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> Difference | None:
    """The first value, in the order of execution, in which the two sides differ; None if there is none."""
    differences = compare_values(program, args, kwargs, rtol=rtol, atol=atol)
    return next((difference for difference in differences if not difference.ok), None)


def by_module(differences: Iterable[Difference]) -> dict[str, Difference]:
    """The worst difference of each module, by module path, in the order in which the modules first computed."""
    worst: dict[str, Difference] = {}
    for difference in differences:
        known = worst.get(difference.module)
        if known is None or (known.ok, -known.max_rel) > (difference.ok, -difference.max_rel):
            worst[difference.module] = difference
    return worst


def _fx_names(graph: ir.Graph) -> Iterator[tuple[str, str]]:
    """(FX node name, ONNX name) of the main graph's values."""
    for node in graph:
        for value in node.outputs:
            if value.name:
                yield value.metadata_props.get(ORIGINAL_NODE_NAME, value.name), value.name


def _module_path(node: torch.fx.Node) -> str:
    scopes: list[str] = ast.literal_eval(of_fx_node(node)[NAME_SCOPES])  # module paths, then the node's own name
    return scopes[-2] if len(scopes) > 1 else ""


def _lifted(exported: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
    """The arguments of the FX graph: weights, buffers and constants, copied where it may write, then the user's."""
    try:
        user = iter(exported.call_spec.in_spec.flatten_up_to((tuple(args), dict(kwargs or {}))))
    except ValueError as error:
        raise ArgumentError(f"The arguments do not have the structure the model was exported with: {error}") from error
    values: list[Any] = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT or spec.target is None:
            values.append(_copied(next(user)))
        else:
            state = exported.state_dict if spec.target in exported.state_dict else exported.constants
            value = state[spec.target]
            values.append(value if spec.kind == InputKind.PARAMETER else _copied(value))
    return values
