"""Yields the conditions on which a captured program may rely: candidates, which runs confirm or refute.

They are what torch recorded, as guards; what follows from the operators, as the ends of tables, divisors and squeezed
axes; and that a size inside of the program is not 0 or 1, and an argument not negative, where torch checks neither.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import Boolean
from torch.export import ExportedProgram

from fx_onnx.capture.dynamic_dims import guard_place
from fx_onnx.capture.proof.graph_interpreter import squeezed_axes
from fx_onnx.capture.proof.index_bounds import index_bounds
from fx_onnx.capture.proof.kernel_checks import kernel_checks
from fx_onnx.capture.proof.size_condition import BRANCH, Condition, Sizes
from fx_onnx.capture.proof.view_conditions import view_conditions
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.sizes.size_text import without_factors
from fx_onnx.sizes.symbolic_sizes import is_data_dependent
from fx_onnx.torch_internals.guard_private import as_made, guard_origin, questions_of
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload, pytree, symbolic_expression

__all__ = ["changed_questions", "inner_conditions", "recorded_conditions"]

_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
_SPLITS = (aten.split.Tensor, aten.chunk.default)


def changed_questions(shape_env: Any, sizes: Sizes, others: Sizes) -> Iterator[Condition]:
    """Yields what the code asks that is true for some sizes and false for others, the model's own questions first."""
    questions = questions_of(shape_env)
    for question in sorted(questions, key=lambda question: not questions[question].is_own):
        line, is_own = questions[question]
        if isinstance(question, Boolean) and question.free_symbols <= sizes.keys():
            asked = Condition(question, line=line, is_own=is_own)
            if asked.holds(sizes) != asked.holds(others):
                yield asked if asked.holds(sizes) else replace(asked, expression=sympy.Not(question))


def recorded_conditions(
    program: ExportedProgram,
    shape_env: Any,
    defined: Mapping[sympy.Symbol, Any],
    copies: Mapping[torch.fx.Node, bool] | None = None,
) -> Sequence[Condition]:
    """Returns what torch recorded, and what it did not: sizes 1 that are squeezed, the ends of tables, divisors 0.

    The ends of tables of static sizes, and divisors, come before the guards: they need no run. The size of a dynamic
    table may be the outcome of a branch, which leaves a guard.

    Args:
        program: The captured program.
        shape_env: torch's ShapeEnv, which holds the guards.
        defined: The sizes that the caller defines by others.
        copies: Which calls return views or copies; see ``written_copies``.
    """
    bounds = list(index_bounds(program))
    static, dynamic = ([bound for bound, is_static in bounds if is_static is wanted] for wanted in (True, False))
    views = _over(defined, view_conditions(copies or {}))
    checks = (check for node in program.graph.nodes for check in kernel_checks(node) if check.symbols)
    conditions = dict[Any, Condition]()
    for condition in (
        *_over(defined, (*_squeezed(program), *static, *_divisors(program))),
        *(replace(view, expression=without_factors(view.expression)) for view in views),
        *_guards(program, shape_env, defined),
        *_over(defined, (*checks, *dynamic)),
    ):
        conditions.setdefault(condition.expression, condition)
    return list(conditions.values())


def _over(defined: Mapping[sympy.Symbol, Any], conditions: Iterable[Condition]) -> Iterator[Condition]:
    """Yields conditions over the sizes that the caller does not define by others."""
    yield from (replace(each, expression=each.expression.xreplace(defined)) for each in conditions)


def _guards(program: ExportedProgram, shape_env: Any, defined: Mapping[sympy.Symbol, Any]) -> Iterator[Condition]:
    """Yields the parts of torch's guards."""
    has_lists = any(program.graph.find_nodes(op="call_function", target=split) for split in _SPLITS)
    for guard in getattr(shape_env, "guards", ()):
        origin, line, recorded = guard_origin(guard), guard_place(guard), guard.expr
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
            yield Condition(part, raises, *facts, guard=recorded, is_checked=True)


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


def _divisors(program: ExportedProgram) -> Iterator[Condition]:
    """Yields that a number by which the model divides another one is not 0; Python raises there."""
    for node in program.graph.nodes:
        divisor = node.args[1] if node.op == "call_function" and node.target in _DIVISIONS else None
        if isinstance(divisor, torch.fx.Node) and not isinstance(divisor.meta.get("val"), torch.Tensor):
            is_other = sympy.Ne(symbolic_expression(divisor.meta["val"]), 0)
            yield Condition(is_other, True, "divides by it", call_line(node).strip())


def _squeezed(program: ExportedProgram) -> Iterator[Condition]:
    """Yields that the dynamic size of an axis that the model squeezes is not 1; torch removes an axis of size 1.

    A size that depends on data is no condition on inputs, even if another size must equal it.
    """
    for node in program.graph.nodes:
        for axis in squeezed_axes(node):
            shape = node.args[0].meta["val"].shape
            dim = symbolic_expression(shape[axis]) if shape and isinstance(shape[axis], torch.SymInt) else None
            if dim is not None and not dim.is_number and not is_data_dependent(as_made(shape[axis])):
                line = call_line(node).strip()
                yield Condition(sympy.Ne(dim, 1), False, "removes the axis for this size", line, is_own=True)


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
