"""Yields the conditions on which a captured program may rely: candidates, which runs confirm or refute.

They are what torch recorded, as guards; what follows from the operators, as the ends of tables, divisors and squeezed
axes; and that a size inside of the program is not 0 or 1, and an argument not negative, where torch checks neither.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Any, Literal

import sympy
import torch
from sympy.logic.boolalg import Boolean
from torch.export import ExportedProgram

from fx_onnx.aten.shared_storages import written_copies
from fx_onnx.capture.dynamic_dims import guard_place
from fx_onnx.capture.proof.index_bounds import index_bounds
from fx_onnx.capture.proof.kernel_checks import kernel_checks
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.sizes.size_text import without_factors
from fx_onnx.sizes.symbolic_sizes import is_data_dependent
from fx_onnx.sizes.trial_sizes import condition_of
from fx_onnx.torch_internals.guard_private import as_made, guard_origin, questions_of
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload, pytree, symbolic_expression

__all__ = [
    "BRANCH",
    "EQUATES",
    "RAISES",
    "UNDEFINED",
    "WRITES",
    "Condition",
    "Sizes",
    "all_hold",
    "changed_questions",
    "inner_conditions",
    "one_is_larger",
    "recorded_conditions",
    "weaker_conditions",
]

Sizes = Mapping[sympy.Symbol, int]
BRANCH = "takes another branch for other sizes"
RAISES = "raises an exception for other sizes"
EQUATES = "broadcasts one of these sizes to the other"
WRITES = "makes a view or a copy, depending on the sizes, and writes in place"
UNDEFINED = "repeats values that it crops, which are undefined"
_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
_SPLITS = (aten.split.Tensor, aten.chunk.default)
_SQUEEZES = (aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)


@dataclass(frozen=True)
class Condition:
    """A condition on which the captured program relies.

    Attributes:
        expression: the condition over the symbols of the inputs.
        raises: whether torch raises an exception where it is false.
        cause: what the code does, for a sentence.
        line: the line of the code, as ``(file:line: code)``; empty if none is known.
        converts: whether a Python number was needed, which is a constant in the program.
        is_own: whether the model compares or converts sizes itself, without a call of torch.
        function: the function of torch that compares or converts them; None if there is none.
        is_count: whether a Python number was needed, on which no list of pieces in the program depends.
        kind: ``bound`` or ``finding``.
        is_certain: whether a finding is known to be true.
        witness: the sizes at which the condition was seen to be false, by symbol; empty if nothing ran.
        seen: what happened there.
        guard: the condition as torch recorded it.
        is_checked: whether tensors without values raise the exception too. They do not look up indices in tensors.
    """

    expression: Any
    raises: bool = False
    cause: str = BRANCH
    line: str = ""
    converts: bool = False
    is_own: bool = False
    function: Any = None
    is_count: bool = False
    kind: Literal["bound", "finding"] = "finding"
    is_certain: bool = True
    witness: tuple[tuple[sympy.Symbol, int], ...] = ()
    seen: str = ""
    guard: Any = None
    is_checked: bool = False

    @cached_property
    def symbols(self) -> tuple[sympy.Symbol, ...]:
        """The symbols of the expression, in the order of their names."""
        return tuple(sorted(self.expression.free_symbols, key=str))

    @cached_property
    def test(self) -> Any:
        """The condition as a function of the sizes of its symbols."""
        return condition_of(self.expression, self.symbols)

    def holds(self, sizes: Sizes) -> bool:
        """Returns whether the condition is true for sizes."""
        return bool(self.test(*(sizes[symbol] for symbol in self.symbols)))


def all_hold(conditions: Iterable[Condition], sizes: Sizes) -> bool:
    """Returns whether all conditions are true for sizes."""
    return all(condition.holds(sizes) for condition in conditions)


def changed_questions(shape_env: Any, sizes: Sizes, others: Sizes) -> Iterator[Condition]:
    """Yields what the code asks that is true for some sizes and false for others, the model's own questions first."""
    questions = questions_of(shape_env)
    for question in sorted(questions, key=lambda question: not questions[question].is_own):
        line, is_own = questions[question]
        if isinstance(question, Boolean) and question.free_symbols <= sizes.keys():
            asked = Condition(question, line=line, is_own=is_own)
            if asked.holds(sizes) != asked.holds(others):
                yield asked if asked.holds(sizes) else replace(asked, expression=sympy.Not(question))


def one_is_larger(symbols: Iterable[sympy.Symbol]) -> Condition:
    """Returns that not all sizes are 1, where the code does not ask for them but for a number that it made of them."""
    return Condition(sympy.Or(*(sympy.Ne(symbol, 1) for symbol in symbols)), cause=BRANCH)


def weaker_conditions(condition: Condition) -> Iterator[Condition]:
    """Yields conditions that one size is not less than another one, and that a number is not less than needed.

    The forward may read the first pieces of a split only, whose number is a condition.
    """
    forms = [first >= second for first, second in permutations(condition.symbols, 2)]
    if condition.is_count and isinstance(condition.expression, sympy.Eq) and condition.expression.args[1].is_Integer:
        number, count = condition.expression.args
        forms += [number >= least for least in range(int(count), 1, -1)]
    yield from (replace(condition, expression=weaker, converts=False) for weaker in forms)


def recorded_conditions(
    program: ExportedProgram, shape_env: Any, defined: Mapping[sympy.Symbol, Any]
) -> Sequence[Condition]:
    """Returns what torch recorded, and what it did not: sizes 1 that are squeezed, the ends of tables, divisors 0.

    Args:
        program: The captured program.
        shape_env: torch's ShapeEnv, which holds the guards.
        defined: The sizes that the caller defines by others.
    """
    conditions = dict[Any, Condition]()
    for dim, line in _squeezed(program):
        expression = sympy.Ne(dim.xreplace(defined), 1)
        cause = "removes the axis for this size"
        conditions.setdefault(expression, Condition(expression, cause=cause, line=line, is_own=True))
    bounds = [
        (Condition(bound, raises=True, line=at, is_checked=is_number), is_static)
        for bound, at, is_static, is_number in index_bounds(program, defined)
    ]
    conditions |= {bound.expression: bound for bound, is_static in bounds if is_static}
    conditions |= {part: Condition(part, True, "divides by it", at) for part, at in _divisors(program, defined)}
    checks = [
        Condition(check.xreplace(defined), True, UNDEFINED if undefined else BRANCH, line, is_checked=is_checked)
        for node, line in ((node, call_line(node).strip()) for node in program.graph.nodes)
        for check, is_checked, undefined in kernel_checks(node)
        if check.free_symbols
    ]
    for part, line in _of_views(program, defined):
        conditions.setdefault(part, Condition(part, cause=WRITES, line=line))
    has_lists = any(program.graph.find_nodes(op="call_function", target=split) for split in _SPLITS)
    for guard in getattr(shape_env, "guards", ()):
        origin, line, recorded = guard_origin(guard), guard_place(guard), guard.expr
        if origin.is_layout:
            continue
        cause = "converts a size to a Python number" if origin.converts else BRANCH
        if origin.converts and origin.call is not None:
            cause = _frozen_argument(origin.call, recorded) or cause
        function = origin.call[0] if origin.call is not None else None
        is_count = origin.converts and not has_lists
        facts = cause, line, origin.converts, function is None, function, is_count
        over_inputs = shape_env.replace(recorded)
        reduced = over_inputs.xreplace(defined)  # false where a definition contradicts the guard
        for part in map(without_factors, sympy.And.make_args(over_inputs if reduced == sympy.false else reduced)):
            raises = origin.raises and not _is_nonempty(part)
            conditions.setdefault(part, Condition(part, raises, *facts, guard=recorded, is_checked=True))
    for bound in (*checks, *(bound for bound, _ in bounds)):
        conditions.setdefault(bound.expression, bound)
    return list(conditions.values())


def _of_views(program: ExportedProgram, defined: Mapping[sympy.Symbol, Any]) -> Iterator[tuple[Any, str]]:
    """Yields the conditions under which calls beside a write return a view or a copy, and their places."""
    if copies := written_copies(program.graph_module):  # few programs need the file
        from fx_onnx.capture.proof.view_conditions import view_conditions

        for condition, line in view_conditions(copies):
            yield without_factors(condition.xreplace(defined)), line


def _is_nonempty(condition: Any) -> bool:
    """Returns whether a number must not be 0: torch's checks for elements are stricter than its kernels for numbers."""
    return isinstance(condition, (sympy.Ne, sympy.Gt)) and bool(condition.args[1] == 0)


def inner_conditions(program: ExportedProgram, defined: Mapping[sympy.Symbol, Any]) -> list[Condition]:
    """Returns that sizes inside of the program are not 1 and not 0, and that no argument of an operator is negative.

    torch takes a size for 2 or more without a guard, and some kernels check their arguments only when they run.
    """
    known: dict[Any, Condition] = {}
    for node in program.graph.nodes:
        value, predicates = node.meta.get("val"), dict[Any, str]()
        if node.op == "call_function" and isinstance(value, torch.Tensor):
            for size in _inner(value.shape, defined):
                predicates |= {sympy.Ne(size, n): f"has a size inside that is {n} for other sizes" for n in (1, 0)}
            if isinstance(node.target, OpOverload) and not node.target.is_view:
                given = (argument.meta.get("val") for argument in node.all_input_nodes)
                predicates |= {number >= 0: "gives a function a negative number" for number in _inner(given, defined)}
        for predicate, cause in predicates.items():
            if predicate not in known and predicate != sympy.true:
                known[predicate] = Condition(predicate, cause=cause, line=call_line(node).strip())
    return list(known.values())


def _inner(values: Iterable[Any], defined: Mapping[sympy.Symbol, Any]) -> Iterator[Any]:
    """Yields the expressions of those numbers that the program computes from the sizes of its inputs."""
    for value in values:
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            number = symbolic_expression(value).xreplace(defined)
            if not number.is_Symbol and not number.is_number and not is_data_dependent(number):
                yield number


def _divisors(program: ExportedProgram, defined: Mapping[sympy.Symbol, Any]) -> Iterator[tuple[Any, str]]:
    """Yields that a number by which the model divides another one is not 0, and the place; Python raises there."""
    for node in program.graph.nodes:
        divisor = node.args[1] if node.op == "call_function" and node.target in _DIVISIONS else None
        if isinstance(divisor, torch.fx.Node) and not isinstance(divisor.meta.get("val"), torch.Tensor):
            yield sympy.Ne(symbolic_expression(divisor.meta["val"]).xreplace(defined), 0), call_line(node).strip()


def _squeezed(program: ExportedProgram) -> Iterator[tuple[Any, str]]:
    """Yields the dynamic size of each axis that the model squeezes, and the place; torch removes an axis of size 1.

    A size that depends on data is no condition on inputs, even if another size must equal it.
    """
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target in _SQUEEZES:
            shape = node.args[0].meta["val"].shape
            axes = node.args[1] if len(node.args) > 1 else range(len(shape))
            for axis in [axes] if isinstance(axes, int) else axes:
                dim = symbolic_expression(shape[axis]) if shape and isinstance(shape[axis], torch.SymInt) else None
                if dim is not None and not dim.is_number and not is_data_dependent(as_made(shape[axis])):
                    yield dim, call_line(node).strip()


def _frozen_argument(call: tuple[Any, Any, Any], guard: Any) -> str:
    """Returns a clause about the argument of a function of torch that became a constant; empty if it is not found."""
    function, args, kwargs = call
    numbers = guard.args if isinstance(guard, sympy.Eq) else ()
    for name, value in _named_arguments(function, args or (), kwargs or {}):
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, (torch.SymInt, torch.SymFloat)) and symbolic_expression(leaf) in numbers:
                of = f" {name!r}" if name else ""
                called = getattr(function, "__name__", function)
                return f"gives the argument{of} of {called} a size, which is a constant there"
    return ""


def _named_arguments(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of C++: the operator of the same name has the same parameters
        operator = getattr(aten, getattr(function, "__name__", "").strip("_") or "none").torch_operator
        schemas = [getattr(operator, name)._schema.arguments for name in operator.overloads()] if operator else []
        parameters = [formal.name for formal in next((schema for schema in schemas if len(schema) >= len(args)), [])]
    yield from zip([*parameters, *[""] * len(args)], args, strict=False)
    yield from kwargs.items()
