"""Finds the form of a function of torch that takes symbolic numbers where the function takes plain ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache, partial
from types import CellType, FunctionType
from typing import Any

import torch

from fx_onnx.decompositions import load_all
from fx_onnx.decompositions.registry import SYMBOLIC
from fx_onnx.torch_internals.torch_private import OpOverload, storage_id, storage_ids

__all__ = ["symbolic_form", "view_forms"]

_QUESTIONS = frozenset({"has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"})


def symbolic_form(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], running: Container[Any] = (), known: Any = None
) -> tuple[Any, Callable[..., Any]] | None:
    """Returns a function that computes the same, but keeps the symbolic numbers of a call; None if there is none.

    It is the form in ``SYMBOLIC``, for an operator if the call has a symbol where the operator's schema declares none.
    For one of torch's functions in Python it is the function's body, whose calls of operators can be redirected.

    Args:
        function: A function of torch, as a mode sees it.
        args: Its positional arguments, of which at least one is symbolic, or a keyword argument.
        kwargs: Its keyword arguments.
        running: What is not a candidate: the forms that are computed now may call the function.
        known: What identifies the form that the same call had in the trace, if its numbers are plain now.

    Returns:
        What identifies the form in ``running``, and the form.
    """
    load_all()
    form = SYMBOLIC.get(function)
    if form is not None and form not in running:
        return form, form
    body = _body(function) if isinstance(function, FunctionType) else None
    if body is not None:
        return None if function in running else (function, body)
    name = getattr(function, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    for operator, form in _forms().get(name.rstrip("_") if in_place else name, ()):
        bound = None if form in running or known not in (None, form) else _bind(operator, args, kwargs, known is None)
        if bound is not None:
            return form, partial(_call, form, *bound, args[0] if in_place else None)
    return None


@cache
def view_forms() -> Container[Any]:
    """Returns the forms of operators whose results are views."""
    load_all()
    operators = {operator: form for operator, form in SYMBOLIC.items() if isinstance(operator, OpOverload)}
    return {form for operator, form in operators.items() if any(value.alias_info for value in operator._schema.returns)}


def _call(
    form: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], target: Any, *_: Any, **__: Any
) -> Any:
    """Calls a form with the arguments that the schema has; an in-place function writes the result to its target.

    A form may return its argument, or a view of it, where the operator returns a copy, which a forward may write to.
    """
    result = form(*args, **kwargs)
    if target is not None:
        return target.copy_(result)
    is_view = isinstance(result, torch.Tensor) and storage_id(result) in storage_ids((args, kwargs))
    return result.clone() if is_view and form not in view_forms() else result


@cache
def _forms() -> Mapping[str, Sequence[tuple[Any, Callable[..., Any]]]]:
    """Returns the operators that have a form, by the name of their function."""
    forms: dict[str, list[tuple[Any, Callable[..., Any]]]] = {}
    for operator, form in SYMBOLIC.items():
        if isinstance(operator, OpOverload):
            name = operator._schema.name.partition("::")[2]
            forms.setdefault(name, []).append((operator, form))
    return forms


def _bind(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], needs_symbol: bool
) -> tuple[list[Any], dict[str, Any]] | None:
    """Returns positional and keyword arguments by a schema; None if they do not fit, or have no symbol out of place."""
    schema = operator._schema.arguments
    positional = [argument for argument in schema if not argument.kwarg_only]
    given = {**dict(zip((argument.name for argument in positional), args, strict=False)), **kwargs}
    if "input" in given and positional and positional[0].name == "self":
        given["self"] = given.pop("input")
    if len(args) > len(positional) or not given.keys() <= {argument.name for argument in schema}:
        return None
    kinds, needs_form, values = _kinds(operator), not needs_symbol, {}
    for argument in schema:
        if argument.name not in given:
            if argument.default_value is None and not argument.has_default_value():
                return None
            values[argument.name] = argument.default_value
            continue
        value, kind = given[argument.name], kinds[argument.name]
        if value is not None and isinstance(value, torch.Tensor) != kind.startswith("Tensor"):
            return None
        parts = value if isinstance(value, (list, tuple)) else [value]
        is_symbolic = any(isinstance(part, (torch.SymInt, torch.SymFloat)) for part in parts)
        needs_form |= is_symbolic and not kind.startswith("SymInt")
        count = re.search(r"\[(\d+)\]", kind)
        values[argument.name] = (
            value if value is None or count is None or isinstance(value, (list, tuple)) else [value] * int(count[1])
        )
    if not needs_form:
        return None
    options = {name: values[name] for name in given if name not in {argument.name for argument in positional}}
    return [values[argument.name] for argument in positional], options


@cache
def _kinds(operator: Any) -> Mapping[str, str]:
    """Returns the type of each parameter as the schema writes it, such as `SymInt[2]`; torch's objects hide `Sym`."""
    pairs = re.findall(r"(\w+(?:\(\w!?\))?(?:\[\d*\])?\??) (\w+)(?=[=,)])", str(operator._schema))
    return {name: kind for kind, name in pairs}


def _asks_for_modes(function: Any) -> bool:
    """Returns whether a function in Python hands itself to a mode that replaces functions of torch."""
    return isinstance(function, FunctionType) and not _QUESTIONS.isdisjoint(function.__code__.co_names)


def _body(function: FunctionType) -> FunctionType | None:
    """Returns a function of torch that does not hand itself to a mode, so that a mode sees the calls inside.

    The functions in its closure do not either: torch selects one of two by a flag.
    """
    cells = function.__closure__ or ()
    if not (_asks_for_modes(function) or any(_asks_for_modes(cell.cell_contents) for cell in cells)):
        return None
    inner = (
        CellType(_without_questions(function, function.__closure__)) if _asks_for_modes(function) else cell
        for cell in cells
        for function in (cell.cell_contents,)
    )
    return _without_questions(function, tuple(inner))


def _without_questions(function: FunctionType, closure: tuple[CellType, ...] | None) -> FunctionType:
    variables = {**function.__globals__, **dict.fromkeys(_QUESTIONS, lambda *_: False)}
    body = FunctionType(function.__code__, variables, function.__name__, function.__defaults__, closure)
    body.__kwdefaults__ = function.__kwdefaults__
    return body
