"""The functions that are registered for ATen operators accept every call that the operators' schemas allow."""

from __future__ import annotations

import dis
import inspect
import keyword
from collections.abc import Callable
from typing import Any

import torch

import fx_onnx.translations  # noqa: F401  registers the translations
from fx_onnx.decompositions import DECOMPOSITIONS
from fx_onnx.extension_points.translation_table import Translation, registered_translations
from fx_onnx.onnx_model.opsets import MAXIMUM_OPSET, MINIMUM_NATIVE_OPSET
from fx_onnx.torch_internals.torch_private import OpOverload

# ATen's numbers for what has a name in Python (c10/core/ScalarType.h, MemoryFormat.h).
SCALAR_TYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32]
MEMORY_FORMATS = [torch.contiguous_format, torch.preserve_format, torch.channels_last]

# The fake result already has the dtype that these keywords request, or ONNX does not have the concept. A function may
# accept them as ``**options``.
WITHOUT_EFFECT = {"dtype", "layout", "device", "pin_memory", "generator", "memory_format"}


def _registered() -> list[Translation]:
    entries = [entry for entries in registered_translations().values() for entry in entries]
    return [entry for entry in entries if isinstance(entry.target, OpOverload)]


def _parameters(function: Callable[..., Any], after: int) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())[after:]


def _normalized(default: Any) -> Any:
    """Returns a default value in the form in which defaults are compared.

    A schema writes a tuple as a list, may repeat one number for all dims, and gives dtypes and memory formats as
    numbers.
    """
    if default in SCALAR_TYPES:
        return SCALAR_TYPES.index(default)
    if default in MEMORY_FORMATS:
        return MEMORY_FORMATS.index(default)
    if isinstance(default, (list, tuple)):
        items = tuple(default)
        return items[0] if items and all(item == items[0] for item in items) else items
    return default


def _mismatch(function: Callable[..., Any], target: OpOverload, targets: list[OpOverload], after: int) -> list[str]:
    """Returns why some legal call of ``target`` does not fit ``function``, or differs from the schema.

    Args:
        function: the registered function.
        target: the operator.
        targets: all operators of the function; its parameters may be those of all of them together.
        after: the number of the function's parameters before the schema's.
    """
    given = _parameters(function, after)
    variadic = {p.kind for p in given} & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    given = [p for p in given if p.kind not in variadic]
    schema = target._schema.arguments
    known = {argument.name for each in targets for argument in each._schema.arguments}
    problems = [f"needs {p.name}, which no schema has" for p in given if p.name not in known and p.default is p.empty]
    for place, argument in enumerate(schema):
        if len(variadic) == 2 and any(keyword.iskeyword(a.name) for a in schema[: place + 1]):
            break  # Python cannot name the parameter ``from``, nor accept by position what follows it
        omitted = argument.kwarg_only and argument.name not in {p.name for p in given}
        if omitted and argument.name in WITHOUT_EFFECT and variadic:
            continue
        problems += _argument_mismatch(argument, place, given, targets)
    return problems + _unfilled(given, schema, target)


def _argument_mismatch(
    argument: Any, place: int, given: list[inspect.Parameter], targets: list[OpOverload]
) -> list[str]:
    positional = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if argument.kwarg_only:
        parameter = next((p for p in given if p.name == argument.name), None)
        if parameter is None:
            return [f"lacks the keyword {argument.name}"]
    else:
        # a function of several overloads may use the name that another overload has at this position
        names = {t._schema.arguments[place].name for t in targets if place < len(t._schema.arguments)}
        parameter = positional[place] if place < len(positional) else None
        if parameter is None or parameter.name not in names:
            return [f"lacks {argument.name} at position {place}"]
    if not argument.has_default_value():
        return []
    if parameter.default is inspect.Parameter.empty:
        return [f"has no default for {parameter.name}"]
    if _normalized(parameter.default) != _normalized(argument.default_value):
        return [f"defaults {parameter.name} to {parameter.default!r}, not {argument.default_value!r}"]
    return []


def _unfilled(given: list[inspect.Parameter], schema: Any, target: OpOverload) -> list[str]:
    """Returns the required parameters that no call of the operator fills."""
    positional = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in given if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    filled = {argument.name for argument in schema}
    filled |= {p.name for p in positional[: sum(not argument.kwarg_only for argument in schema)]}
    return [f"needs {name}, which {target} does not pass" for name in needed if name not in filled]


def test_translations_accept_every_call_of_their_operators() -> None:
    """After the emitter, a translation has the schema's parameters, with their names, order and defaults."""
    by_function: dict[Any, list[OpOverload]] = {}
    for entry in _registered():
        by_function.setdefault(entry.function, []).append(entry.target)
    wrong = [
        f"{entry.function.__name__} for {entry.target._schema}: {problems}"
        for entry in _registered()
        if (problems := _mismatch(entry.function, entry.target, by_function[entry.function], after=1))
    ]
    assert wrong == []


def test_predicates_take_parameters_of_their_operators() -> None:
    """``supports`` gets the arguments that it names; it reads each, and needs those of every call only."""
    entries = [entry for entries in registered_translations().values() for entry in entries]
    assert [problem for entry in entries if entry.supports is not None for problem in _rejected(entry)] == []


def _rejected(entry: Translation) -> list[str]:
    parameters = _parameters(entry.supports, 0)  # type: ignore[arg-type]
    if isinstance(entry.target, OpOverload):
        has_default = {argument.name: argument.has_default_value() for argument in entry.target._schema.arguments}
    else:  # a function of Python, or the name of an operator of another library
        has_default = {p.name: p.default is not p.empty for p in _parameters(entry.function, 1)}
    code = inspect.unwrap(entry.supports).__code__  # type: ignore[arg-type]
    read = {each.argval for each in dis.get_instructions(code) if each.opname.startswith("LOAD")} | {*code.co_cellvars}
    return [
        f"the predicate of {entry.target} has the parameter {p.name}"
        for p in parameters
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        or (p.default is p.empty and has_default.get(p.name, True))
        or p.name not in read
    ]


def test_decompositions_accept_every_call_of_their_operators() -> None:
    by_function: dict[Any, list[OpOverload]] = {}
    for target, function in DECOMPOSITIONS.items():
        if isinstance(target, OpOverload):
            by_function.setdefault(function, []).append(target)
    wrong = [
        f"{function.__name__} for {target._schema}: {problems}"
        for function, targets in by_function.items()
        for target in targets
        if (problems := _mismatch(function, target, targets, after=0))
    ]
    assert wrong == []


def test_translations_are_of_native_opsets() -> None:
    since = {entry.since for entries in registered_translations().values() for entry in entries}
    assert since <= set(range(MINIMUM_NATIVE_OPSET, MAXIMUM_OPSET + 1))


def test_a_wrong_signature_is_found() -> None:
    def add(op: Any, self: Any, alpha: int = 2) -> None: ...

    target = torch.ops.aten.add.Tensor
    assert _mismatch(add, target, [target], after=1) == ["lacks other at position 1", "defaults alpha to 2, not 1"]
