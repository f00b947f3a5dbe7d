"""Finds the sizes 0 and 1 for which the model takes a branch that the captured program does not contain.

torch assumes that a symbolic size is neither 0 nor 1, and records no guard for a branch such as `if x.shape[0] == 1`.
Many such branches only save work, and give the same results. So this file compares the captured program with the model
at the small size, where a branch depends on it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.capture.dynamic_dims import CapturedInput, defined_sizes, dims_and_sizes
from fx_onnx.capture.eager_model import copy_without_weights, with_floats
from fx_onnx.capture.patches.size_comparisons import SizeComparison
from fx_onnx.capture.request import Request
from fx_onnx.capture.size_constraints import SizeConstraint
from fx_onnx.core.metadata import call_line
from fx_onnx.core.operators import aten
from fx_onnx.core.size_text import expression_text
from fx_onnx.core.torch_private import FakeTensor, pytree, symbolic_expression
from fx_onnx.core.trial_sizes import resized

Result = TypeVar("Result")
# The text of a small size gets a digit more; ten times a large size would take too long.
_LARGER: tuple[Callable[[int], int], ...] = (
    lambda n: n, lambda n: n + 1, lambda n: 2 * n, lambda n: 3 * n, lambda n: 10 * n if n <= 10 else n + 5
)  # fmt: skip
_SQUEEZES = (aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)


@dataclass(frozen=True)
class ExcludedSize:
    """A size for which the captured program does not compute what the model computes.

    Attributes:
        dim: The sympy expression of the dim, which is a symbol if it is a dim of an input.
        size: The size, 0 or 1.
        place: The place of the code that computes something else for this size, in parentheses; empty if unknown.
        cause: What the code does.
        is_certain: Whether the results are known to differ. False if the model has no values to compare.
    """

    dim: Any
    size: int
    place: str
    cause: str = "takes another branch"
    is_certain: bool = True

    def describe(self, labels: Mapping[str, str]) -> str:
        """Returns one sentence, with the labels of symbols instead of their names."""
        name = expression_text(self.dim, labels)
        reason = f"because the code {self.cause} for this size{f' {self.place}' if self.place else ''}."
        if self.is_certain:
            return f"The exported model is wrong where {name} == {self.size}, {reason}"
        return f"The exported model may be wrong where {name} == {self.size}, {reason}"


def squeezed_sizes(program: ExportedProgram) -> Iterator[ExcludedSize]:
    """Yields size 1 for each dynamic axis that the model squeezes: torch removes the axis for this size only."""
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target in _SQUEEZES:
            shape = node.args[0].meta["val"].shape
            axes = node.args[1] if len(node.args) > 1 else range(len(shape))
            for axis in [axes] if isinstance(axes, int) else axes:
                dim = symbolic_expression(shape[axis]) if shape and isinstance(shape[axis], torch.SymInt) else None
                if dim is not None and not dim.is_number and sympy.Eq(dim, 1) is not sympy.false:
                    yield ExcludedSize(dim, 1, call_line(node).strip(), "removes the axis")


class BranchedSizes:
    """The sizes 0 and 1 for which a comparison of sizes makes the results of a captured program wrong."""

    def __init__(
        self,
        request: Request,
        program: ExportedProgram,
        inputs: list[CapturedInput],
        comparisons: Iterable[SizeComparison],
    ) -> None:
        """Takes the tensors among the inputs, and the comparisons that the forward made during the capture."""
        self._request = request
        self._program = program
        self._inputs = inputs
        self._comparisons = tuple(comparisons)
        self._compared: dict[tuple[sympy.Symbol, int], bool | None] = {}

    def excluded(self, constraints: Sequence[SizeConstraint] = ()) -> Iterator[ExcludedSize]:
        """Yields the sizes for which the results differ.

        Args:
            constraints: Constraints that are reported anyway; sizes that they exclude are not repeated.
        """
        for (symbol, size), place in self._places.items():
            changed = self._changed(symbol, size)
            if not any(constraint.excludes(changed) for constraint in constraints):
                agrees = self._agrees(symbol, size)
                if not agrees:
                    yield ExcludedSize(symbol, size, place, is_certain=agrees is not None)

    def excludes(self, dim: Any, size: int) -> bool:
        """Returns whether the results differ for one size of one dim."""
        return (dim, size) in self._places and not self._agrees(dim, size)

    def works(self, dim: sympy.Symbol, size: int) -> bool:
        """Returns whether the model runs for one size of one dim, and the captured program computes the same."""
        changed = self._changed(dim, size)
        return bool(_agrees(self._request, self._program, self._inputs, changed, if_model_fails=False))

    def agree_elsewhere(self, constraints: Sequence[SizeConstraint]) -> bool | None:
        """Returns whether the model and the captured program compute the same for the example and for larger sizes.

        Sizes that a constraint or the range of a dim excludes are not tried. Returns None if the module cannot run, or
        if a dim is an expression over no other dim, such as twice a symbol.
        """
        results: list[bool | None] = []
        dims = [dim for dim, _ in dims_and_sizes(self._request, self._inputs) if not isinstance(dim, int)]
        if not all(dim.free_symbols <= self._sizes.keys() for dim in dims):
            return None
        for change in _LARGER:
            sizes = {symbol: sympy.Integer(change(int(size))) for symbol, size in self._sizes.items()}
            sizes |= {each: value.xreplace(sizes) for each, value in self._defined.items()}
            spans = [(self._program.range_constraints.get(symbol), size) for symbol, size in sizes.items()]
            is_allowed = all(span is None or span.lower <= size <= span.upper for span, size in spans)
            if is_allowed and not any(constraint.excludes(sizes) for constraint in constraints):
                results.append(_agrees(self._request, self._program, self._inputs, sizes))
        return None if None in results else all(results)

    @cached_property
    def _sizes(self) -> dict[sympy.Symbol, sympy.Integer]:
        """The sizes of the example, but at least 2, so that a difference comes from the one dim that changes."""
        pairs = dims_and_sizes(self._request, self._inputs)
        return {dim: sympy.Integer(max(size, 2)) for dim, size in pairs if isinstance(dim, sympy.Symbol)}

    @cached_property
    def _places(self) -> dict[tuple[sympy.Symbol, int], str]:
        """The sizes for which a comparison has another outcome, with the place of its code."""
        places: dict[tuple[sympy.Symbol, int], str] = {}
        for each in self._comparisons:
            for symbol in sorted(each.symbols & self._sizes.keys() - self._defined.keys(), key=str):
                for size in (1, 0):
                    outcome = each.outcome(self._changed(symbol, size))
                    if outcome is not None and outcome != each.outcome(self._sizes):
                        places.setdefault((symbol, size), each.place)
        return places

    @cached_property
    def _defined(self) -> Mapping[Any, Any]:
        """The dims that are defined by others."""
        return defined_sizes(self._inputs)

    def _changed(self, symbol: sympy.Symbol, size: int) -> dict[Any, Any]:
        """Returns the sizes with one other size. The dims that are defined by others have the sizes that follow."""
        sizes = {**self._sizes, symbol: sympy.Integer(size)}
        return {**sizes, **{each: value.xreplace(sizes) for each, value in self._defined.items()}}

    def _agrees(self, symbol: sympy.Symbol, size: int) -> bool | None:
        """Returns what ``_agrees`` returns, from one comparison for each size."""
        if (symbol, size) not in self._compared:
            changed = self._changed(symbol, size)
            self._compared[symbol, size] = _agrees(self._request, self._program, self._inputs, changed)
        return self._compared[symbol, size]


# --- comparison -------------------------------------------------------------------------------------------------------


def _agrees(
    request: Request,
    program: ExportedProgram,
    inputs: list[CapturedInput],
    sizes: Mapping[Any, Any],
    if_model_fails: bool = True,
) -> bool | None:
    """Returns whether the model and the captured program compute the same for these sizes.

    Returns ``if_model_fails`` if the model itself fails for the sizes. Returns None if the model cannot be copied or
    has no values, or if it contains a loop until a condition holds, which may never end for these sizes.
    """
    if isinstance(request.model, ExportedProgram) or _has_endless_loop(program):
        return None
    original = request.model
    weights = [*original.parameters(), *original.buffers()]
    if any(isinstance(weight, FakeTensor) or weight.is_meta for weight in weights):
        return None
    shapes = iter([[_size(each.dim(axis), sizes) for axis in range(each.value.ndim)] for each in inputs])
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        given = pytree.tree_map_only(
            torch.Tensor, lambda t: _with_noise(resized(t, next(shapes))), (request.args, request.kwargs)
        )
        model = _if_possible(lambda: copy_without_weights(original))
        if model is None:  # a class of the user's that cannot be copied
            return None
        trials = (given, *_with_other_masks(given))
        return all(_agree_on(request, program, model, each, if_model_fails) for each in trials)


def _agree_on(
    request: Request, program: ExportedProgram, model: torch.nn.Module, given: tuple[Any, Any], if_model_fails: bool
) -> bool:
    """Returns whether the model and the program compute the same for these arguments."""
    want = _if_possible(lambda: _results(model, with_floats(request, copy.deepcopy(given))))
    if want is None:
        return if_model_fails
    got = _if_possible(lambda: _results(partial(_run, program), given))
    return got is not None and len(got) == len(want) and all(map(_is_equal, got, want))


def _has_endless_loop(program: ExportedProgram) -> bool:
    """Returns whether the program may contain a loop whose number of iterations depends on data."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    loops = (torch.ops.higher_order.while_loop, torch.ops.higher_order.while_loop_stack_output)
    return any(node.target in loops for graph in graphs for node in graph.nodes)


def _if_possible(call: Callable[[], Result]) -> Result | None:
    """Returns the result of a call that runs the user's code; None if it fails."""
    try:
        return call()
    except Exception:
        return None


def _size(dim: Any, sizes: Mapping[Any, Any]) -> int:
    return dim if isinstance(dim, int) else int(dim.xreplace(sizes))


def _with_noise(tensor: torch.Tensor) -> torch.Tensor:
    """Adds noise to floating-point numbers, because zeros in the example would hide a difference."""
    return tensor + torch.rand_like(tensor) if tensor.is_floating_point() and tensor.ndim else tensor


def _with_other_masks(given: tuple[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yields the arguments with alternating zeros and ones in each mask.

    Equal values hide a difference: a mask of ones is often the same as no mask. A mask is a tensor of integers or
    booleans that are all 0 or 1. Yields nothing if there is none.
    """
    if any(isinstance(leaf, torch.Tensor) and _is_mask(leaf) for leaf in pytree.tree_leaves(given)):
        yield pytree.tree_map_only(torch.Tensor, lambda t: _alternating(t) if _is_mask(t) else t, given)


def _is_mask(tensor: torch.Tensor) -> bool:
    exact = not (tensor.is_floating_point() or tensor.is_complex())
    return exact and tensor.ndim > 0 and tensor.numel() > 0 and bool(((tensor == 0) | (tensor == 1)).all())


def _alternating(tensor: torch.Tensor) -> torch.Tensor:
    return (torch.arange(tensor.numel(), device=tensor.device) % 2).reshape(tensor.shape).to(tensor.dtype)


def _results(model: Any, given: tuple[Any, Any]) -> list[Any]:
    torch.manual_seed(0)
    args, kwargs = given
    return [leaf for leaf in pytree.tree_leaves(model(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]


def _run(program: ExportedProgram, *args: Any, **kwargs: Any) -> Any:
    """Runs the captured graph, whose guards are not in it; it may write to buffers and constants: they are copied."""
    given = iter(pytree.tree_leaves((args, kwargs)))
    values: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT or spec.target is None:
            values.append(next(given))
            continue
        value = program.state_dict.get(spec.target, program.constants.get(spec.target))
        values.append(value.clone() if spec.kind != InputKind.PARAMETER and isinstance(value, torch.Tensor) else value)
    return torch.fx.Interpreter(program.graph_module).run(*values)


def _is_equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    return torch.allclose(got, want, rtol=1e-3, atol=1e-4, equal_nan=True)
