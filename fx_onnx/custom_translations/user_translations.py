"""Custom translations: functions of an emitter, symbolic functions, onnxscript functions, functions for torch.onnx."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import onnxscript
import torch

from fx_onnx.custom_translations import autograd_functions, kept_functions
from fx_onnx.custom_translations.onnxscript_functions import call_script, trace
from fx_onnx.extension_points.plugins import Plugin
from fx_onnx.extension_points.rooms import find
from fx_onnx.extension_points.translation_table import PLUGINS, Translation
from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError, PluginError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_private import (
    CustomOpDef,
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    operator_of,
)
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.symbolic_registry import operator_named, overloads_of

if TYPE_CHECKING:
    from fx_onnx.compat.symbolic_functions import SymbolicFunction

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def translations(custom: Mapping[Any, Callable[..., Any]], opset: int) -> list[Translation]:
    """Returns the translations of a custom_translation_table in a native opset.

    A function can have one of four forms. A function whose first parameter is named ``op`` or annotated ``Emitter`` is
    a translation already. One whose first parameter is named ``g`` or annotated ``GraphContext`` is a symbolic function
    of torch.onnx's TorchScript exporter; see symbolic_functions.py. An ``@onnxscript.script`` function becomes a
    model-local function that the model calls. Any other function counts as one written for torch.onnx, which calls
    ``onnxscript.opsetNN``; these calls emit nodes. In the first and the last form, Python's arithmetic on values emits
    nodes too.

    A function receives each argument of the operator for which it has a parameter, including the schema's defaults. It
    returns the operator's results, then the new value of each argument that the operator mutates.

    Raises:
        ArgumentError: a key is not something that an FX node calls, a value is not a function, or the parameters of a
            function do not fit the operator's schema.
    """
    result: list[Translation] = []
    for key, function in custom.items():
        if not callable(function):
            raise ArgumentError(
                f"The translation of {key} in custom_translation_table must be one function, not {function!r}; it can "
                f"read the opset from op.opset.",
                id=MessageId.CUSTOM_TRANSLATION,
            )
        result += [adapted(function, target, opset) for target in targets(key)]
    return result


def plugin_translations(opset: int) -> list[Translation]:
    """Returns the translations of plug-ins in a native opset.

    A key may also be the name of an operator, such as ``torchvision::nms``; one that no operator of this process has is
    left out.

    Raises:
        PluginError: a plug-in cannot be loaded, has a table that is not valid, or claims an operator of another one.
    """
    claimed: dict[Any, Plugin] = {}
    result: list[Translation] = []
    for plugin in PLUGINS.all():
        named = {key: operator_named(key) for key in plugin.value if isinstance(key, str) and "::" in key}
        present = ((named.get(key, key), function) for key, function in plugin.value.items())
        try:
            added = translations({key: function for key, function in present if key is not None}, opset)
        except OnnxExporterError as error:
            plugin.refuse(error)
        for entry in added:
            if (other := claimed.setdefault(entry.target, plugin)) is not plugin:
                raise PluginError(
                    f"The plug-ins {other.name!r} of {other.package} and {plugin.name!r} of {plugin.package} both "
                    f"translate {entry.target}; uninstall one of them."
                )
        result += added
    return result


def symbolic_function(*args: Any, **kwargs: Any) -> SymbolicFunction:
    """Returns a symbolic function as a translation, which the room of torch.onnx's older interface makes."""
    function: SymbolicFunction = find("translations", "symbolic functions")(*args, **kwargs)
    return function


def as_translation(symbolic: SymbolicFunction, target: Any = None) -> Translation:
    """Returns the translation that checks the results of a symbolic function."""
    target = symbolic.target if target is None else target

    def translation(op: Emitter, *args: Any, **kwargs: Any) -> Any:
        return _checked_results(symbolic(op, *args, **kwargs), op.out, symbolic.name)

    translation.__name__ = symbolic.name
    translation.__wrapped__ = symbolic.function  # type: ignore[attr-defined]
    return Translation(target, translation, is_custom=True, declines=symbolic.declines)


def targets(key: Any) -> Sequence[Any]:
    """Returns the FX targets of a key; a packet such as ``aten.add`` means all its overloads without an ``out``."""
    if isinstance(key, OpOverloadPacket):
        return overloads_of(key)
    if isinstance(key, CustomOpDef):
        return [operator_of(key)]
    if isinstance(key, (OpOverload, HigherOrderOperator)) or is_autograd_function(key) or _is_of_numbers(key):
        return [key]
    if inspect.isfunction(key) and "<locals>" not in key.__qualname__:
        return [key]
    raise ArgumentError(
        f"A key of custom_translation_table must be an operator such as torch.ops.aten.add.Tensor, a "
        f"torch.autograd.Function, or a function of a Python module, not {key!r}, which a captured program never "
        f"calls.",
        id=MessageId.CUSTOM_TRANSLATION,
    )


def is_autograd_function(key: Any) -> bool:
    """Returns whether a key is a subclass of torch.autograd.Function."""
    return isinstance(key, type) and issubclass(key, torch.autograd.Function)


def is_kept(key: Any) -> bool:
    """Returns whether a key is a function of a Python module, which the capture keeps whole."""
    return inspect.isfunction(key) and not _is_of_numbers(key)


def _is_of_numbers(key: Any) -> bool:
    """Returns whether a key is a Python function that a captured program may call on symbolic numbers."""
    name = getattr(key, "__name__", "")
    return callable(key) and (getattr(key, "__module__", None) in ("_operator", "math") or name.startswith("sym_"))


# ---------------------------------------------------------------- how a function is called


def adapted(function: Callable[..., Any], target: Any, opset: int) -> Translation:
    """Returns ``function`` as a translation of ``target`` that adapts the arguments and checks the results."""
    if not isinstance(function, onnxscript.OnnxFunction) and _issymbolic_function(function):
        symbolic = symbolic_function(function, target, opset)
        symbolic.check_arguments()
        return as_translation(symbolic)
    name = str(getattr(function, "__name__", None) or getattr(function, "name", repr(function)))
    call, parameters = _caller(function)
    schema = target._schema if isinstance(target, OpOverload) else None
    places = None if schema is None else _places(schema, parameters, f"The translation {name} of {target}")
    if is_autograd_function(target) or is_kept(target):
        _check_call(target, parameters, name)

    @functools.wraps(function, updated=())
    def translation(op: Emitter, *args: Any, **kwargs: Any) -> Any:
        if places is not None:
            args, kwargs = _split_arguments(schema, places, args, kwargs, name)
        with _arithmetic(op):
            result = call(op, *args, **kwargs)
        return _checked_results(result, op.out, name)

    return Translation(target, translation, is_custom=True)


def _caller(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[Parameter]]:
    """Returns a callable that takes an emitter first, and the parameters for the operator's arguments."""
    if isinstance(function, onnxscript.OnnxFunction):
        signature = function.op_signature
        return functools.partial(call_script, function), list(map(_parameter, signature.params if signature else ()))
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and (parameters[0].name == "op" or parameters[0].annotation in (Emitter, "Emitter")):
        return function, parameters[1:]
    return functools.partial(trace, function), parameters


def _parameter(formal: ir.schemas.Parameter | ir.schemas.AttributeParameter) -> Parameter:
    """Returns a parameter of an onnxscript function as a Python parameter."""
    if getattr(formal, "variadic", False):
        return Parameter(formal.name, Parameter.VAR_POSITIONAL)
    default = Parameter.empty if formal.required else None
    return Parameter(formal.name, Parameter.POSITIONAL_OR_KEYWORD, default=default)


def _places(schema: Any, parameters: Sequence[Parameter], what: str) -> dict[str, bool]:
    """Returns how the function takes each argument of the schema: True for by position, False for by keyword.

    An argument with a default may have no parameter.

    Raises:
        ArgumentError: an argument has no parameter, or a parameter has no argument.
    """
    by_place = [p for p in parameters if p.kind in _BY_PLACE]
    names = {p.name for p in parameters if p.kind in _BY_NAME}
    kinds = {p.kind for p in parameters}
    places: dict[str, bool] = {}
    filled: set[str] = set()
    for argument in schema.arguments:
        if not argument.kwarg_only and (len(filled) < len(by_place) or Parameter.VAR_POSITIONAL in kinds):
            places[argument.name] = True
            filled |= {p.name for p in by_place[len(filled) : len(filled) + 1]}
        elif argument.name in names - filled or Parameter.VAR_KEYWORD in kinds:
            places[argument.name] = False
            filled.add(argument.name)
        elif not argument.has_default_value():
            raise ArgumentError(
                f"{what} has no parameter for {argument.name!r} of {schema}.", id=MessageId.CUSTOM_TRANSLATION
            )
    for parameter in parameters:
        needed = parameter.default is Parameter.empty and parameter.kind in (*_BY_PLACE, Parameter.KEYWORD_ONLY)
        if needed and parameter.name not in filled:
            raise ArgumentError(
                f"{what} needs {parameter.name!r}, which is not an argument of {schema}.",
                id=MessageId.CUSTOM_TRANSLATION,
            )
    return places


def _check_call(function: Any, parameters: Sequence[Parameter], name: str) -> None:
    """Raises ArgumentError if the parameters cannot take the arguments of a function, or of ``apply``."""
    is_class = is_autograd_function(function)
    given = autograd_functions.apply_parameters(function) if is_class else kept_functions.kept_parameters(function)
    required = [p for p in given if p.default is Parameter.empty]
    for arguments in (given, required):
        try:
            inspect.Signature(parameters).bind(*arguments)
        except TypeError as error:
            reason = error
        else:
            return
    raise ArgumentError(
        f"The translation {name} of {function.__name__} cannot take the arguments{' of apply' * is_class}: {reason}.",
        id=MessageId.CUSTOM_TRANSLATION,
    )


def _split_arguments(
    schema: Any, places: Mapping[str, bool], args: Sequence[Any], kwargs: Mapping[str, Any], name: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the positional and the keyword arguments with which to call the function."""
    given = {**dict(zip((a.name for a in schema.arguments), args, strict=False)), **kwargs}
    for argument in schema.arguments:
        if argument.has_default_value():
            given.setdefault(argument.name, argument.default_value)
            if argument.name not in places and given[argument.name] != argument.default_value:
                raise TypeError(f"{name} has no parameter for {argument.name}={given[argument.name]!r}")
    positional = tuple(given[key] for key, by_place in places.items() if by_place)
    return positional, {key: given[key] for key, by_place in places.items() if not by_place}


def _checked_results(result: Any, out: Sequence[Any], name: str) -> Any:
    """Returns the results after checking that there is one value for each result of the operator."""
    results = tuple(result) if isinstance(result, (list, tuple)) else (result,)
    expected = [fake for fake in out if fake is not None]
    if len(results) != len(expected) and (expected or results != (None,)):
        raise TypeError(f"{name} returned {len(results)} results, but the operator has {len(expected)}")
    for value, fake in zip(results, expected, strict=False):
        if isinstance(fake, torch.Tensor) and not isinstance(value, ir.Value):
            raise TypeError(f"{name} returned {shown(value)} instead of an ONNX value")
    return results[0] if len(results) == 1 else results


@contextmanager
def _arithmetic(op: Emitter) -> Iterator[None]:
    """Makes ``x + y`` of values emit ``op.Add(x, y)`` until the context ends."""
    before = ir.set_value_magic_handler(op)
    try:
        yield
    finally:
        ir.set_value_magic_handler(before)


def _issymbolic_function(function: Any) -> bool:
    """Returns whether the first parameter is named ``g`` or annotated with ``GraphContext``."""
    parameters = list(inspect.signature(function).parameters.values())
    return bool(parameters) and (parameters[0].name == "g" or "GraphContext" in str(parameters[0].annotation))
