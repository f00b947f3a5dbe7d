"""The private names of torch's guards that the package uses, beside those in torch_private.py.

A guard is a condition on sizes that torch records while it captures. The docstring of each function says what happens
without the name.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import operator
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, NamedTuple

import sympy
import torch
from sympy.logic.boolalg import BooleanAtom
from torch.export import ExportedProgram

from fx_onnx.messages.source_lines import is_internal, line_text, user_frame
from fx_onnx.torch_internals.torch_private import GuardOnDataDependentSymNode, unset_fake_temporarily
from fx_onnx.torch_internals.trace_private import recorded_number

__all__ = [
    "SCRIPT_MARK",
    "GuardOrigin",
    "Question",
    "answered_by_sizes",
    "answers_of_example",
    "as_made",
    "asks_for_layout",
    "assume_sizes_from_2",
    "check_conditions",
    "deferring_float_checks",
    "disproved_guards",
    "empty_sizes",
    "example_size",
    "forget_guards",
    "guard_location",
    "guard_origin",
    "guard_script_line",
    "integer_functions",
    "is_from_file",
    "known_sizes",
    "mark_origin",
    "names_of_sources",
    "python_of_guards",
    "questions_of",
    "ranges_before_hints",
    "set_guards",
    "sizes_that_decide",
    "symbols_of_sources",
    "traced_frames",
]

# Stands before the path of a line of TorchScript, because torch shortens absolute paths, some of them wrongly.
SCRIPT_MARK = "TorchScript:"

_INFINITE = import_module("torch.utils._sympy.numbers").int_oo


def symbols_of_sources(shape_env: Any) -> Mapping[str, Any]:
    """Returns the symbol of each size of an input, by source, such as ``L['x'].size()[0]``.

    Returns an empty mapping without the attribute; then a warning about a static dim gives a general reason.
    """
    return getattr(shape_env, "source_to_var", {})


def is_from_file(shape_env: Any) -> bool:
    """Returns whether a program comes from torch.export.load, which gives no source to its sizes."""
    return not symbols_of_sources(shape_env)


def names_of_sources(shape_env: Any) -> Mapping[str, str]:
    """Returns the name of the ``Dim`` of each size of an input that has one, by source.

    Returns an empty mapping without the attribute; then the dims of a user's own capture have names such as `x_dim_0`.
    """
    return getattr(shape_env, "source_name_to_debug_name", {})


def python_of_guards(program: ExportedProgram) -> Sequence[str]:
    """Returns the guards of a program as Python code, which newer versions of torch.export.save keep.

    Returns none without the attribute; then what the file requires of sizes is known by their ranges alone.
    """
    return tuple(getattr(program, "_guards_code", None) or ())


def integer_functions() -> Mapping[Any, Callable[..., Any]]:
    """Returns torch's functions on symbolic sizes by Python's operator or function; none of those that torch lacks."""
    functions: Any = import_module("torch.utils._sympy.functions")
    names = {
        ast.FloorDiv: "FloorDiv", ast.Mod: "PythonMod", ast.Div: "IntTrueDiv", ast.Pow: "PowByNatural",
        "max": "Max", "min": "Min",
    }  # fmt: skip
    return {key: getattr(functions, name) for key, name in names.items() if hasattr(functions, name)}


def set_guards(shape_env: Any, expressions: Sequence[Any]) -> None:
    """Makes expressions the guards of a program from a file, without lines.

    Its guards before are torch's own questions about the layout of the fake tensors that torch.export.load makes.
    """
    shape_env.guards = [SimpleNamespace(expr=expression, sloc=None) for expression in expressions]


def guard_location(guard: Any) -> traceback.FrameSummary | None:
    """Returns the frame of the code that made torch record a guard: the user's, or torch's own.

    Returns None if torch recorded none, or without the attribute; then a warning about the guard gives no place.
    """
    frame = getattr(getattr(guard, "sloc", None), "framework_loc", None)
    return frame if isinstance(frame, traceback.FrameSummary) else None


def guard_script_line(guard: Any) -> traceback.FrameSummary | None:
    """Returns the line of a TorchScript model that made torch record a guard; see ``set_script_line``.

    Returns None if it was no such line, or without the attribute; then a message about the guard names no line.
    """
    line = getattr(getattr(guard, "sloc", None), "maybe_user_loc", None)  # "code  # file:line in function"
    match = re.search(rf"{SCRIPT_MARK}(.*):(\d+) in (\w+)$", line or "")
    return None if match is None else traceback.FrameSummary(match[1], int(match[2]), match[3])


def example_size(size: Any) -> int:
    """Returns a size of the example, without a guard; 1 for a size that depends on data.

    Without the attribute each size is 1.
    """
    return size if isinstance(size, int) else getattr(size.node, "hint", None) or 1


def as_made(number: Any) -> Any:
    """Returns the expression of a symbolic number before torch replaced its symbols, as by a size that must be equal.

    Without the attribute it is the expression after that; then one row that broadcasts has no branch.
    """
    return getattr(number.node, "_expr", number.node.expr)


def known_sizes(shape_env: Any) -> Mapping[Any, Any]:
    """Returns what torch knows of each symbol: the expression that replaces it, and its range.

    Without the attributes, a branch on data is refused: AttributeError.
    """
    return {symbol: (shape_env.replacements.get(symbol), span) for symbol, span in shape_env.var_to_range.items()}


class GuardOrigin(NamedTuple):
    """What made torch record a guard.

    Attributes:
        frame: the innermost line of the user's or a library's code; None if there is none.
        raises: whether torch raises an exception where the guard is false.
        converts: whether a Python number was needed, so that the number of the example is a constant.
        truncates: whether the code calls ``int``, whose result strict mode keeps symbolic.
        call: the function of torch that was called, its arguments and keyword arguments; None if there is none.
    """

    frame: traceback.FrameSummary | None = None
    raises: bool = False
    converts: bool = False
    truncates: bool = False
    call: Any = None


def mark_origin(location: Any, origin: GuardOrigin) -> None:
    """Adds its origin to the place of a guard, which torch has for its own code only."""
    object.__setattr__(location, "origin", origin)


def guard_origin(guard: Any) -> GuardOrigin:
    """Returns the origin of a guard; an empty one if ``mark_origin`` added none."""
    origin: GuardOrigin = getattr(getattr(guard, "sloc", None), "origin", GuardOrigin())
    return origin


_TORCH = str(Path(torch.__file__).parent)
_COMPARING = (torch.__file__, str(Path(_TORCH, "fx")), str(Path(__file__).parents[1]))
"""The files that compare symbolic sizes for the code that asks: torch's and the dispatchers of patches."""


def asks_for_layout(frame: Any) -> bool:
    """Returns whether torch asks about a size for the layout of a result only, which changes no value.

    A fake convolution asks whether its input is empty, and how large it is, for the kernel and its memory format.
    Without its function, such a question becomes an untrue finding, or a decomposition is refused for it.

    Args:
        frame: the frame of the comparison, or one within it.
    """
    frame = _asking_frame(frame)
    return frame is not None and frame.f_code in _layout_questions()


def _asking_frame(frame: Any) -> Any:
    """Returns the frame of the code that asks a question about a size, from the frame of the comparison."""
    while frame is not None and frame.f_code.co_filename.startswith(_COMPARING):
        frame = frame.f_back
    return frame


@cache
def _layout_questions() -> frozenset[Any]:
    function: Any = getattr(import_module("torch._subclasses.fake_impls"), "conv", None)
    code: Any = getattr(inspect.unwrap(function), "__code__", None)
    return frozenset({code, *(const for const in code.co_consts if isinstance(const, CodeType))} if code else ())


def deferring_float_checks(record: Callable[..., bool]) -> Callable[..., bool]:
    """Returns what replaces the method that records a check: one of floats becomes no guard on sizes of the inputs.

    Without torch's names: ImportError or AttributeError. torch cannot print a guard on a float.
    """
    symbols = import_module("torch.utils._sympy.symbol")

    def deferring(shape_env: Any, *args: Any, **kwargs: Any) -> bool:
        result, checks = record(shape_env, *args, **kwargs), shape_env.deferred_runtime_asserts
        for check in checks.pop(None, []):
            floats = (s for s in check.expr.free_symbols if symbols.symbol_is_type(s, symbols.SymT.UNBACKED_FLOAT))
            checks.setdefault(next(floats, None), []).append(check)
        return result

    return deferring


def empty_sizes(shape_env: Any) -> set[Any]:
    """Returns the sizes inside of a captured program that are 0 for some sizes of its inputs of which none is 0.

    A capture adds them. Without them, a size that is no size of an input is taken for one that is not 0.
    """
    sizes: set[Any] = vars(shape_env).setdefault("empty_sizes", set())
    return sizes


def forget_guards(shape_env: Any, conditions: Sequence[Any], ranges: Mapping[sympy.Symbol, Any]) -> None:
    """Makes torch know no more than it would know without some guards, so that no decomposition relies on them.

    What follows from the other guards is computed again. Equal symbols, which torch has replaced, stay equal. Without
    the attributes nothing is forgotten; then a decomposition may be right only where the guard holds.

    Args:
        shape_env: torch's ShapeEnv.
        conditions: The guards to forget, as torch recorded them.
        ranges: The smallest and the largest size of the symbols in them, apart from all guards.
    """
    shape_env.guards[:] = [guard for guard in shape_env.guards if guard.expr not in conditions]
    axioms, spans = getattr(shape_env, "axioms", {}), getattr(shape_env, "var_to_range", {})
    symbols = {symbol for condition in conditions for symbol in condition.free_symbols}
    for implied in [axiom for axiom in axioms if not symbols.isdisjoint(axiom.free_symbols)]:
        del axioms[implied]
    for symbol in spans.keys() & ranges.keys() & symbols:
        low, high = ranges[symbol]
        spans[symbol] = type(spans[symbol])(low, _INFINITE if high is None else high)
    sides = {side for condition in conditions for side in condition.args}
    getattr(shape_env, "divisible", set()).difference_update(sides)
    _clear_caches(shape_env)
    checks = itertools.chain(*getattr(shape_env, "deferred_runtime_asserts", {}).values())
    for guard in (guard.expr for guard in (*shape_env.guards, *checks) if guard.expr.free_symbols & symbols):
        if len(guard.free_symbols) == 1:
            getattr(shape_env, "_refine_ranges", bool)(guard)
        axioms.update(dict(shape_env.get_implications(shape_env.simplify(guard))))
    _clear_caches(shape_env)


def assume_sizes_from_2(shape_env: Any) -> None:
    """Makes torch take each size of an input for 2 or more, as decompositions assume; a capture decides about 0 and 1.

    Without the attribute, decompositions that compute with differences of sizes are refused.
    """
    ranges, inputs = getattr(shape_env, "var_to_range", {}), set(symbols_of_sources(shape_env).values())
    for symbol, span in ranges.items():
        if symbol in inputs and span.lower < 2 <= span.upper:
            ranges[symbol] = type(span)(2, span.upper)
    _clear_caches(shape_env)


@contextmanager
def ranges_before_hints(shape_env: Any) -> Iterator[None]:
    """Lets the ranges of sizes answer torch's questions before the sizes of the example, which may be outside of them.

    ``assume_sizes_from_2`` excludes an example's size of 1. A question about a layout needs no guard. Without the
    methods there is no effect; then torch refuses a decomposition that asks whether such a size is 1.
    """
    known = getattr(shape_env, "_maybe_evaluate_static", None)
    evaluate = getattr(shape_env, "evaluate_sym_node", None)
    if known is None or evaluate is None:
        yield
        return

    def answered(node: Any, *args: Any, **kwargs: Any) -> Any:
        answer = known(node.expr)
        if answer is None:
            answer = _answer_from_2(shape_env, node.expr)
        if answer is None and asks_for_layout(sys._getframe(1)):
            answer = node.hint
        return evaluate(node, *args, **kwargs) if answer is None else answer

    shape_env.evaluate_sym_node = answered
    try:
        yield
    finally:
        shape_env.evaluate_sym_node = evaluate


@contextmanager
def answers_of_example(shape_env: Any) -> Iterator[None]:
    """Lets the sizes of the example, but at least 2, answer torch's questions about sizes, without guards.

    Without the methods there is no effect; then torch answers by what holds for all sizes.
    """
    evaluate = getattr(shape_env, "evaluate_sym_node", None)
    values = getattr(shape_env, "backed_var_to_val", {})
    if evaluate is None:
        yield
        return
    larger = {symbol: sympy.Integer(max(int(size), 2)) for symbol, size in values.items() if size.is_Integer}

    def answered(node: Any, *args: Any, **kwargs: Any) -> Any:
        answer = node.expr.xreplace(larger)
        return answer if isinstance(answer, BooleanAtom) else evaluate(node, *args, **kwargs)

    shape_env.evaluate_sym_node = answered
    try:
        with import_module("torch.fx.experimental._config").patch(backed_size_oblivious=False):
            yield
    finally:
        shape_env.evaluate_sym_node = evaluate


def sizes_that_decide(shape_env: Any, condition: Any) -> tuple[Any, Sequence[Any]]:
    """Returns the answer to a condition with sizes that depend on data, and for which sizes of inputs it is certain.

    ``Eq(u0 + n, 0)`` is false where ``n >= 1``. If that does not suffice, the sizes are 2 or more, which torch assumes
    unless 0 and 1 are sizes like any other. The answer is None if it depends on the data, if the sizes of the example
    are smaller, or without the names; then torch refuses the condition.
    """
    bounds: Any = getattr(import_module("torch.utils._sympy.value_ranges"), "bound_sympy", None)
    values, ranges = getattr(shape_env, "backed_var_to_val", {}), getattr(shape_env, "var_to_range", {})
    sizes = [symbol for symbol in condition.free_symbols if values.get(symbol, 0) >= 1 and symbol in ranges]
    for least in (1, 2) if bounds is not None else ():
        larger = {size: type(ranges[size])(least, ranges[size].upper) for size in sizes if values[size] >= least}
        answer = bounds(condition, {**ranges, **larger})
        if larger and answer.is_singleton():
            return answer.lower, [sympy.Ge(size, least) for size in larger]
    return None, ()


def answered_by_sizes(evaluate: Callable[..., Any], keep: Callable[[Exception], None]) -> Callable[..., Any]:
    """Returns what replaces the method of torch that evaluates a number: ``sizes_that_decide`` answers what it refuses.

    The sizes for which an answer is certain become a guard. torch's own questions, such as whether a tensor is empty,
    are also answered as for 2 rows or more; ``data_sizes`` tells whether the program is right for 0 and 1. ``keep``
    gets each error that remains. ``questions_of`` returns the questions. A question about a layout needs no guard.
    """

    def answered(shape_env: Any, number: Any, *args: Any, **kwargs: Any) -> Any:
        if asks_for_layout(sys._getframe(1)) and number.hint is not None:
            return number.hint
        _keep_question(shape_env, _as_asked(number), sys._getframe(1))
        try:
            return evaluate(shape_env, number, *args, **kwargs)
        except GuardOnDataDependentSymNode as error:
            answer, assumptions = sizes_that_decide(shape_env, number.expr)
            if answer is None and _is_asked_by_torch(sys._getframe(1)):
                answer = _answer_from_2(shape_env, number.expr)
            if answer is None:
                keep(error)
                raise
            for assumption in assumptions:
                shape_env.evaluate_expr(assumption)
            return answer

    return answered


def _answer_from_2(shape_env: Any, condition: Any) -> Any:
    """Returns the answer to a condition if each size that depends on data is 2 or more; None if there is none.

    Without the method, torch refuses operators that ask whether rows that data select are empty.
    """
    evaluate: Any = getattr(shape_env, "_maybe_evaluate_static", None)
    is_condition = isinstance(condition, sympy.logic.boolalg.Boolean) and evaluate is not None
    return evaluate(condition, size_oblivious=True) if is_condition else None


def _is_asked_by_torch(frame: Any) -> bool:
    """Returns whether torch's own code asks about a size, in C++ or in Python, and not the model."""
    while frame.f_code.co_filename.startswith(_COMPARING[1:]):
        frame = frame.f_back
    asking = _asking_frame(frame)  # another one, if Python compares
    return asking is frame or (asking is not None and asking.f_code.co_filename.startswith(_TORCH))


class Question(NamedTuple):
    """Where a condition on sizes, or a number of them, is evaluated.

    Attributes:
        line: the line of the user's or a library's code, as ``(file:line: code)``; empty if there is none.
        is_own: whether that line itself compares the sizes, and not a function of torch that it calls.
    """

    line: str
    is_own: bool


_RELATIONS: dict[Any, Any] = {
    operator.eq: sympy.Eq, operator.ne: sympy.Ne, operator.lt: sympy.Lt, operator.le: sympy.Le, operator.gt: sympy.Gt,
    operator.ge: sympy.Ge,
}  # fmt: skip


def _as_asked(number: Any) -> Any:
    """Returns the expression of a number; a comparison with 0, which is a constant for torch, as the code has it."""
    expression = number.expr
    node = recorded_number(number) if isinstance(expression, BooleanAtom) else None
    if node is None or node.target not in _RELATIONS:
        return expression
    sides = (side.meta["val"] if isinstance(side, torch.fx.Node) else side for side in node.args)
    return _RELATIONS[node.target](*map(sympy.sympify, sides), evaluate=False)


def _keep_question(shape_env: Any, asked: Any, frame: Any) -> None:
    """Keeps the line of a question for ``questions_of``; a comparison of the model replaces one inside of torch."""
    questions = vars(shape_env).setdefault("questions", {})
    known = questions.get(asked)
    if known is None or not known.is_own:
        asking = _asking_frame(frame)
        is_own = asking is not None and not is_internal(asking.f_code.co_filename)
        if is_own or known is None:
            user = user_frame(frame)
            name = user.f_code.co_filename
            questions[asked] = Question("" if is_internal(name) else line_text(name, user.f_lineno), is_own)


def questions_of(shape_env: Any) -> Mapping[Any, Question]:
    """Returns what was evaluated during the capture.

    torch takes the size of an input for 2 or more, so that a question such as ``x.shape[0] >= 2`` leaves no guard, nor
    does a comparison with 0.
    """
    asked: Mapping[Any, Question] = getattr(shape_env, "questions", {})
    return asked


def _clear_caches(shape_env: Any) -> None:
    for method in vars(type(shape_env)).values():
        getattr(method, "cache_clear", bool)()  # torch caches the results of evaluations


def disproved_guards(shape_env: Any) -> list[Any]:
    """Returns the list of the guards on which the captured graph does not depend, and which torch has forgotten."""
    found: list[Any] = vars(shape_env).setdefault("disproved_guards", [])
    return found


def check_conditions(
    program: ExportedProgram,
    shape_env: Any,
    conditions: Sequence[Any],
    ranges: Mapping[sympy.Symbol, tuple[int, int | None]],
) -> None:
    """Makes the module of a program check conditions and ranges of the inputs' sizes, instead of all guards.

    Without the names, ``program.module()`` refuses sizes for which the program is right.
    """
    convert = getattr(import_module("torch.export.exported_program"), "_convert_guards_to_code", None)
    if convert is None:
        return
    guards, shape_env.guards = shape_env.guards, [SimpleNamespace(expr=condition) for condition in conditions]
    with unset_fake_temporarily():  # the code is made with tensors of the capture's mode, not of the caller's
        program._guards_code = convert(program.graph_module)
    shape_env.guards = guards
    spans = program.range_constraints
    for symbol, (low, high) in ranges.items():
        if symbol in spans:
            spans[symbol] = type(spans[symbol])(low, _INFINITE if high is None else high)


def traced_frames() -> Sequence[traceback.FrameSummary]:
    """Returns the frames of the code that strict mode traces, which it does not run; empty in another mode.

    Returns an empty sequence without torch's function; then a message about a guard of strict mode names no line.
    """
    context: Any = getattr(import_module("torch._guards"), "TracingContext", None)
    return context.extract_stack() or () if hasattr(context, "extract_stack") else ()
