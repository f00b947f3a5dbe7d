"""Finds conditions on dynamic dims that the captured program relies on.

A guard of torch.export holds for the example. For other sizes it may be false, and then the captured program computes a
wrong result, because it contains only the branch that the example takes. This file decides which guards exclude sizes
that the user requested, and writes them as conditions on the user's dim names: `rows >= 5`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from traceback import FrameSummary
from typing import Any, NamedTuple

import sympy
import torch
from torch.export import Dim, ExportedProgram

from fx_onnx.capture.dynamic_dims import (
    CapturedInput,
    defined_sizes,
    dims_and_sizes,
    guard_place,
    specialized_dims,
)
from fx_onnx.capture.request import Request
from fx_onnx.core.arguments import is_dim_word
from fx_onnx.core.guard_private import guard_location
from fx_onnx.core.size_text import expression_text, simple_condition
from fx_onnx.core.torch_private import Mod, pytree, symbolic_expression
from fx_onnx.core.trial_sizes import is_false

# Sizes to evaluate a condition for: a condition that is true for all of them is taken to be always true.
_SIZES = [
    *range(2, 34), 48, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 512, 513, 1000, 1024, 2048, 4096, 65536,
]  # fmt: skip
_SIZES_OF_PAIRS = [2, 3, 4, 5, 7, 8, 16, 33, 100, 513, 4096]  # fewer, because every combination of dims is evaluated
_TRIAL_SIZES = [sympy.Integer(size) for size in _SIZES_OF_PAIRS]
_CONVERSIONS = ("TruncToInt", "FloorToInt", "CeilToInt", "ToFloat", "RoundToInt")
_TORCH_FOLDER = Path(torch.__file__).parent
# torch's functions that compare the end of a slice with the size, and the number of pieces with that of the example.
_COMPARING_FUNCTIONS = ("_compute_slice_index", "split")
_VIEW_FUNCTION = "_reshape_view_helper_core_alg"  # where two sizes are equal, the result of a view has one of them


@dataclass(frozen=True)
class SizeConstraint:
    """A condition on dynamic dims. Where it is false, the captured program does not compute what the model computes.

    Attributes:
        condition: A Python expression over the names of the dims.
        place: ` (file:line: code)`, or an empty string if no code but torch's own has a part in the guard.
        is_python_number: Whether the forward converts a size to a Python number, which is a constant in the program.
        expression: The condition as a sympy expression over torch's symbols.
    """

    condition: str
    place: str
    is_python_number: bool
    expression: Any

    def excludes(self, sizes: Mapping[sympy.Symbol, sympy.Integer]) -> bool:
        """Returns whether the condition is false for these sizes."""
        return is_false(self.expression, sizes)

    def __str__(self) -> str:
        if self.is_python_number and ": assert " not in self.place:
            cause = "converts a size to a Python number"
        else:
            cause = "fails or takes another branch for other sizes"
        return f"The exported model is correct only where {self.condition}, because the code {cause}{self.place}."


@dataclass(frozen=True)
class Restrictions:
    """How far a captured program restricts the dims that were requested as dynamic.

    Attributes:
        count: The number of specialized dims and of size constraints.
        come_from_python_numbers: Whether ``int()`` of a symbolic number is a cause.
    """

    count: int
    come_from_python_numbers: bool


def size_constraints(request: Request, program: ExportedProgram, inputs: list[CapturedInput]) -> list[SizeConstraint]:
    """Returns the conditions on dynamic dims that the program relies on and that the user did not request.

    Two kinds of guards do not count. torch assumes everywhere that a size is neither 0 nor 1. For sizes that violate a
    precondition, such as the equal lengths of two tensors that are added, the model itself fails.
    """
    shape_env: Any = next((each.shape_env for each in inputs if each.shape_env is not None), None)
    names = {**_scalar_names(program), **_dim_names(inputs)}
    defined = defined_sizes(inputs)
    ranges = requested_ranges(request)

    @cache  # torch records many guards twice, and each takes hundreds of evaluations
    def tried(condition: Any) -> _TriedCondition:
        symbols = sorted(condition.free_symbols, key=str)
        return _tried(condition, [_requested_sizes(symbol, names, ranges, len(symbols)) for symbol in symbols])

    found: dict[str, SizeConstraint] = {}
    guards = [(guard, shape_env.replace(guard.expr)) for guard in getattr(shape_env, "guards", ())]
    divisible = [condition for _, condition in guards if isinstance(condition, sympy.Eq) and condition.has(Mod)]
    for guard, condition in guards:
        symbols = sorted(condition.free_symbols, key=str)
        if condition.xreplace(defined) == sympy.true:
            continue
        if isinstance(condition, sympy.core.relational.Relational) and symbols and names.keys() >= set(symbols):
            constraint = _constraint(condition, symbols, guard, names, tried, program)
            if constraint is not None:
                constraint = _simplified(constraint, symbols, names, divisible)
                found.setdefault(constraint.condition, constraint)
    return _without_implied(list(found.values()))


def _simplified(
    constraint: SizeConstraint, symbols: list[sympy.Symbol], names: dict[sympy.Symbol, str], divisible: list[Any]
) -> SizeConstraint:
    """Returns the constraint in a simple form together with the divisibility that the model needs anyway.

    torch writes a view of 2 columns as ``n // (n // 2) == 2`` and ``n % 2 == 0``, which is ``n % 2 == 0``.
    """
    if len(symbols) > 1 or "//" not in constraint.condition:
        return constraint
    needed = [condition for condition in divisible if condition.free_symbols == set(symbols)]
    both = sympy.And(constraint.expression, *needed, evaluate=False)
    text = simple_condition(both, symbols[0], names[symbols[0]]) if needed else None
    return constraint if text is None else replace(constraint, condition=text, expression=both)


def _without_implied(constraints: list[SizeConstraint]) -> list[SizeConstraint]:
    """Returns the constraints without those on several dims that hold wherever those on single dims hold."""
    single = [each for each in constraints if len(each.expression.free_symbols) == 1]

    def is_implied(constraint: SizeConstraint) -> bool:
        symbols = sorted(constraint.expression.free_symbols, key=str)
        all_sizes = (dict(zip(symbols, sizes, strict=True)) for sizes in product(_TRIAL_SIZES, repeat=len(symbols)))
        return all(
            any(each.expression.free_symbols <= set(symbols) and each.excludes(sizes) for each in single)
            for sizes in all_sizes
            if constraint.excludes(sizes)
        )

    return [each for each in constraints if each in single or not (single and is_implied(each))]


def dim_labels(program: ExportedProgram, inputs: list[CapturedInput]) -> dict[str, str]:
    """Returns a label for each symbol of the inputs: the user's name, the input's name, or `input.shape[axis]`."""
    return {str(symbol): label for symbol, label in {**_scalar_names(program), **_dim_names(inputs)}.items()}


def describe_relation(relation: sympy.Eq, call: str, labels: Mapping[str, str]) -> str:
    """Returns the warning that the model is correct only where an equation holds, such as `total == new + past`."""
    return f"The exported model is correct only where {expression_text(relation, labels)}, which {call} requires."


def restrictions(inputs: list[CapturedInput], constraints: Sequence[SizeConstraint]) -> Restrictions:
    """Returns how far a program restricts the dims that were requested as dynamic.

    Args:
        inputs: The tensors among the inputs of the program.
        constraints: Its size constraints.
    """
    static = list(specialized_dims(inputs))
    return Restrictions(
        count=len(static) + len(constraints),
        come_from_python_numbers=any(each.is_python_number and "int(" in each.condition for each in constraints),
    )


def holds_for_example(request: Request, inputs: list[CapturedInput]) -> bool:
    """Returns whether a program that was captured from another example is correct for the user's example.

    This is so if every guard is true for the sizes of the user's example. The guards by which torch assumes that a size
    is neither 0 nor 1 are not checked.
    """
    if any(isinstance(dim, int) and dim != size for dim, size in dims_and_sizes(request, inputs)):
        return False
    sizes = _example_sizes(request, inputs)
    for shape_env in {id(env): env for each in inputs if (env := each.shape_env) is not None}.values():
        for guard in shape_env.guards:
            condition = shape_env.replace(guard.expr)
            not_0_or_1 = isinstance(condition, sympy.Ne) and condition.args[1] in (0, 1) and not condition.has(Mod)
            if not_0_or_1 and _is_from_torch(guard):
                continue
            if is_false(condition, sizes):
                return False
    return True


def _example_sizes(request: Request, inputs: list[CapturedInput]) -> dict[sympy.Symbol, sympy.Integer]:
    pairs = dims_and_sizes(request, inputs)
    return {dim: sympy.Integer(size) for dim, size in pairs if isinstance(dim, sympy.Symbol)}


def _is_from_torch(guard: Any) -> bool:
    """Returns whether torch's own code, not the model's, made torch record the guard."""
    location = guard_location(guard)
    return location is not None and Path(location.filename).is_relative_to(_TORCH_FOLDER)


def _dim_names(inputs: list[CapturedInput]) -> dict[sympy.Symbol, str]:
    """Returns a name for the symbol of each dynamic dim: the user's name if it is a word, or `input.shape[axis]`."""
    names: dict[sympy.Symbol, str] = {}
    for each in inputs:
        for axis, name in each.request.axes.items():
            dim = each.dim(axis)
            if isinstance(dim, sympy.Symbol):
                names.setdefault(dim, name if name and is_dim_word(name) else f"{each.name}.shape[{axis}]")
    return names


def _scalar_names(program: ExportedProgram) -> dict[sympy.Symbol, str]:
    """Returns the names of the graph inputs that are integers, such as the token counts of a cache."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    values = [(node.meta.get("val"), node.name) for node in placeholders]
    return {symbolic_expression(value): name for value, name in values if isinstance(value, torch.SymInt)}


def requested_ranges(request: Request) -> dict[str, tuple[int, Any]]:
    """Returns the (min, max) of Dim objects by name."""
    leaves = pytree.tree_leaves(request.dynamic_shapes, is_leaf=lambda leaf: isinstance(leaf, Dim))
    return {dim.__name__: (dim.min, dim.max) for dim in leaves if isinstance(dim, Dim) and hasattr(dim, "min")}


def _constraint(
    condition: Any,
    symbols: list[sympy.Symbol],
    guard: Any,
    names: dict[sympy.Symbol, str],
    tried: Callable[[Any], _TriedCondition],
    program: ExportedProgram,
) -> SizeConstraint | None:
    """Returns the constraint of a guard; None if the guard excludes no size that was requested."""
    by_model = not _is_from_torch(guard)
    equation = isinstance(condition, sympy.Eq) and any(side.is_number for side in condition.args)
    python_number = equation and (by_model or _has_conversion(condition))
    part_is_0_or_1 = equation and condition.args[1] in (0, 1) and not condition.has(Mod)
    location = guard_location(guard)
    by_slice = _name(location) in _COMPARING_FUNCTIONS
    by_view = isinstance(condition, sympy.Eq) and not condition.has(Mod) and _name(location) == _VIEW_FUNCTION
    # A remainder that must be 0 is a precondition. One that is compared decides between branches.
    by_remainder = condition.has(Mod) and not isinstance(condition, (sympy.Eq, sympy.Ne))
    bound = len(symbols) == 1 and not isinstance(condition, (sympy.Eq, sympy.Ne))
    if not (by_model or python_number or part_is_0_or_1 or by_slice or by_view or by_remainder or bound):
        return None
    if not tried(condition).excludes_some:
        return None
    # A bound that torch's own code adds counts only if it excludes the largest sizes: a lower bound, such as the size
    # of a kernel, is a precondition.
    is_branch = by_model or equation or by_view or by_remainder
    if not is_branch and not tried(condition).excludes_largest:
        return None
    place = guard_place(guard)
    text = _as_python(condition, symbols, names, program)
    return SizeConstraint(text, f" {place}" if place else "", python_number, condition)


class _TriedCondition(NamedTuple):
    """Whether a condition is false for some of the requested sizes, and for the largest of them."""

    excludes_some: bool
    excludes_largest: bool


def _tried(condition: Any, candidates: list[list[sympy.Integer]]) -> _TriedCondition:
    """Evaluates a condition for all combinations of sizes of its symbols, in the order of their names."""
    symbols = sorted(condition.free_symbols, key=str)

    def excludes(sizes: Sequence[sympy.Integer]) -> bool:
        return is_false(condition, dict(zip(symbols, sizes, strict=True)))

    largest = all(candidates) and excludes([sizes[-1] for sizes in candidates])
    return _TriedCondition(largest or any(map(excludes, product(*candidates))), largest)


def _name(location: FrameSummary | None) -> str:
    """Returns the name of the function that a guard comes from."""
    return "" if location is None else location.name


def _has_conversion(condition: Any) -> bool:
    """Returns whether the condition contains a conversion of a size to float, or of a float to an integer."""
    return any(part.func.__name__ in _CONVERSIONS for part in condition.atoms(sympy.Function))


def _requested_sizes(
    symbol: sympy.Symbol, names: dict[sympy.Symbol, str], ranges: dict[str, tuple[int, Any]], count: int
) -> list[sympy.Integer]:
    """Returns the sizes that this dim takes when a condition on ``count`` dims is evaluated, in its requested range."""
    low, high = ranges.get(names[symbol], (2, max(_SIZES)))
    return [sympy.Integer(size) for size in (_SIZES if count == 1 else _SIZES_OF_PAIRS) if low <= size <= high]


def _as_python(
    condition: Any, symbols: list[sympy.Symbol], names: dict[sympy.Symbol, str], program: ExportedProgram
) -> str:
    """Writes the condition in Python over the dims' names; a condition that is a plain bound becomes `rows <= 16`."""
    span = program.range_constraints.get(symbols[0])
    is_bound = not isinstance(condition, (sympy.Eq, sympy.Ne)) and not condition.has(Mod)
    if len(symbols) == 1 and span is not None and is_bound:
        if not is_false(condition, {symbols[0]: sympy.Integer(max(_SIZES))}):
            return f"{names[symbols[0]]} >= {span.lower}"
        if span.upper.is_Integer:
            return f"{names[symbols[0]]} <= {span.upper}"
    text = expression_text(_without_subtraction(condition), {str(symbol): name for symbol, name in names.items()})
    is_simple = (
        len(symbols) > 1
        or isinstance(condition, sympy.Ne)
        or not any(part in text for part in ("//", "%", "max(", "min("))
    )
    return text if is_simple else simple_condition(condition, symbols[0], names[symbols[0]]) or text


def _without_subtraction(condition: Any) -> Any:
    """Moves the subtracted terms of an inequality to the other side, and a lone number to the right side."""
    if isinstance(condition, (sympy.Eq, sympy.Ne)):
        return condition
    terms = sympy.Add.make_args(condition.args[0] - condition.args[1])
    subtracted = [term for term in terms if term.could_extract_minus_sign()]
    left, right = sympy.Add(*(t for t in terms if t not in subtracted)), sympy.Add(*(-t for t in subtracted))
    found = condition.func(left, right, evaluate=False)
    return found.reversed if left.is_number else found
