"""Custom translations: plain functions, onnxscript functions, and functions written for torch.onnx."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter
from typing import Any

import onnx_ir as ir
import onnxscript
import torch
from onnxscript import evaluator
from torch.fx import Graph
from torch.fx.node import map_aggregate

from fx_onnx.capture import autograd_functions
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.schemas import check_meaning
from fx_onnx.core.symbolic_sizes import SymbolicNumber
from fx_onnx.core.torch_private import CustomOpDef, HigherOrderOperator, OpOverload, OpOverloadPacket, operator_of
from fx_onnx.core.translation_table import TranslationTable
from fx_onnx.translation import symbolic_method
from fx_onnx.translation.emitter import Emitter

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def translations(custom: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Returns a custom_translation_table with FX targets as keys and translations as values.

    A function can have one of three forms. A function whose first parameter is named ``op`` or annotated ``Emitter`` is
    a translation already. An ``@onnxscript.script`` function becomes a model-local function that the model calls. Any
    other function counts as one written for torch.onnx, which calls ``onnxscript.opsetNN``; these calls emit nodes. In
    the first and the last form, Python's arithmetic on values emits nodes too.

    A function receives each argument of the operator for which it has a parameter, including the schema's defaults. It
    returns the operator's results, then the new value of each argument that the operator mutates.

    Raises:
        ArgumentError: a key is not something that an FX node calls, a value is not a function, or the parameters of a
            function do not fit the operator's schema.
    """
    result: dict[Any, Callable[..., Any]] = {}
    for key, function in custom.items():
        if not callable(function):
            raise ArgumentError(
                f"The translation of {key} in custom_translation_table must be one function, not {function!r}; it can "
                f"read the opset from op.opset."
            )
        for target in _targets(key):
            result[target] = adapted(function, target)
    return result


def _targets(key: Any) -> Sequence[Any]:
    """Returns the FX targets of a key; a packet such as ``aten.add`` means all its overloads without an ``out``."""
    if isinstance(key, OpOverloadPacket):
        overloads = [getattr(key, overload) for overload in key.overloads()]
        return [each for each in overloads if not any(a.is_out for a in each._schema.arguments)] or overloads
    if isinstance(key, CustomOpDef):
        return [operator_of(key)]
    if isinstance(key, (OpOverload, HigherOrderOperator)) or _is_autograd_function(key) or _is_of_numbers(key):
        return [key]
    raise ArgumentError(
        f"A key of custom_translation_table must be an operator such as torch.ops.aten.add.Tensor, or a "
        f"torch.autograd.Function, not {key!r}, which a captured program never calls."
    )


def _is_autograd_function(key: Any) -> bool:
    return isinstance(key, type) and issubclass(key, torch.autograd.Function)


def functions(custom: Mapping[Any, Any]) -> list[type[torch.autograd.Function]]:
    """Returns the autograd.Functions among the keys of a custom_translation_table."""
    return [key for key in custom if _is_autograd_function(key)]


def translations_of_functions(
    program: torch.export.ExportedProgram, table: TranslationTable
) -> dict[Any, Callable[..., Any]]:
    """Returns the translations of the operators that replaced autograd.Functions during the capture, by FX target.

    A user's translation of a function has precedence over its ``symbolic`` method. A function with neither is left out.
    """
    return {
        target: table[function].function
        if function in table
        else adapted(symbolic_method.translation_of(function), function)
        for target, function in autograd_functions.functions_by_operator(program).items()
        if function in table or autograd_functions.has_symbolic(function)
    }


def uncalled(custom: Mapping[Any, Any], program: torch.export.ExportedProgram, graphs: Iterable[Graph]) -> list[str]:
    """Returns, as text, the keys of a custom_translation_table that the decomposed graphs of a program do not call."""
    called = {node.target for graph in graphs for node in graph.nodes if node.op == "call_function"}
    called |= set(autograd_functions.functions_by_operator(program).values())
    return [str(key) for key in custom if called.isdisjoint(_targets(key))]


def _is_of_numbers(key: Any) -> bool:
    """Returns whether a key is a Python function that a captured program may call on symbolic numbers."""
    name = getattr(key, "__name__", "")
    return callable(key) and (getattr(key, "__module__", None) in ("_operator", "math") or name.startswith("sym_"))


# ---------------------------------------------------------------- how a function is called


def adapted(function: Callable[..., Any], target: Any) -> Callable[..., Any]:
    """Returns ``function`` as a translation of ``target`` that adapts the arguments and checks the results."""
    name = str(getattr(function, "__name__", None) or getattr(function, "name", repr(function)))
    call, parameters = _caller(function)
    schema = target._schema if isinstance(target, OpOverload) else None
    places = None if schema is None else _places(schema, parameters, f"The translation {name} of {target}")
    if _is_autograd_function(target):
        _check_apply(target, parameters, name)

    @functools.wraps(function, updated=())
    def translation(op: Emitter, *args: Any, **kwargs: Any) -> Any:
        if places is not None:
            args, kwargs = _split_arguments(schema, places, args, kwargs, name)
        with _arithmetic(op):
            result = call(op, *args, **kwargs)
        return _checked_results(result, op.out, name)

    return translation


def _caller(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[Parameter]]:
    """Returns a callable that takes an emitter first, and the parameters for the operator's arguments."""
    if isinstance(function, onnxscript.OnnxFunction):
        signature = function.op_signature
        return functools.partial(_call_script, function), list(map(_parameter, signature.params if signature else ()))
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and (parameters[0].name == "op" or parameters[0].annotation in (Emitter, "Emitter")):
        return function, parameters[1:]
    return functools.partial(_trace, function), parameters


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
            raise ArgumentError(f"{what} has no parameter for {argument.name!r} of {schema}.")
    for parameter in parameters:
        needed = parameter.default is Parameter.empty and parameter.kind in (*_BY_PLACE, Parameter.KEYWORD_ONLY)
        if needed and parameter.name not in filled:
            raise ArgumentError(f"{what} needs {parameter.name!r}, which is not an argument of {schema}.")
    return places


def _check_apply(function: type[torch.autograd.Function], parameters: Sequence[Parameter], name: str) -> None:
    """Raises ArgumentError if the parameters cannot take the arguments of ``apply``."""
    given = autograd_functions.apply_parameters(function)
    required = [p for p in given if p.default is Parameter.empty]
    for each in (given, required):
        try:
            inspect.Signature(parameters).bind(*each)
        except TypeError as error:
            reason = error
        else:
            return
    raise ArgumentError(f"The translation {name} of {function.__name__} cannot take the arguments of apply: {reason}.")


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
    expected = [each for each in out if each is not None]
    if len(results) != len(expected) and (expected or results != (None,)):
        raise TypeError(f"{name} returned {len(results)} results, but the operator has {len(expected)}")
    for value, fake in zip(results, expected, strict=False):
        if isinstance(fake, torch.Tensor) and not isinstance(value, ir.Value):
            raise TypeError(f"{name} returned {value!r} instead of an ONNX value")
    return results[0] if len(results) == 1 else results


@contextmanager
def _arithmetic(op: Emitter) -> Iterator[None]:
    """Makes ``x + y`` of values emit ``op.Add(x, y)`` until the context ends."""
    before = ir.set_value_magic_handler(op)
    try:
        yield
    finally:
        ir.set_value_magic_handler(before)


# ---------------------------------------------------------------- onnxscript


def _trace(function: Callable[..., Any], op: Emitter, *args: Any, **kwargs: Any) -> Any:
    """Runs a function for torch.onnx: its calls of onnxscript emit nodes, and symbolic numbers become values."""

    def value(argument: Any) -> Any:
        return op.symbols.value(op, argument, rank=0) if isinstance(argument, SymbolicNumber) else argument

    args, kwargs = map_aggregate(args, value), map_aggregate(kwargs, value)
    with evaluator.default_as(_EmittingEvaluator(op)):
        return function(*args, **kwargs)


def _call_script(function: onnxscript.OnnxFunction[..., Any], op: Emitter, *args: Any, **kwargs: Any) -> Any:
    """Emits a call of an onnxscript function and adds it, with the functions that it calls, to the model."""
    inputs, attributes = _separated(function.op_signature, args, kwargs)
    for inner in function.function_ir.get_called_functions().values():
        op.define(_function_ir(inner, op))
    return op.call(_function_ir(function, op), *inputs, version=function.opset.version, **attributes)


def _function_ir(function: onnxscript.OnnxFunction[..., Any], op: Emitter) -> ir.Function:
    """Returns the model-local function; ONNX requires its body to have the opset of the model."""
    proto = function.to_function_proto()
    known = op.functions.get((proto.domain, proto.name, proto.overload))
    if known is not None:
        if known.meta[_SOURCE] is not function:
            raise TypeError(f"two functions are called {proto.domain}::{proto.name}")
        return known
    found = ir.serde.deserialize_function(proto)
    found.meta[_SOURCE] = function
    written_in = found.opset_imports.get("")
    if written_in is not None:
        for node in ir.traversal.RecursiveGraphIterator(found.graph):
            if not node.domain:
                check_meaning(node.op_type, written_in, op.opset)
        found.opset_imports[""] = op.opset
    return found


# The key in the ``meta`` of a model-local function for its onnxscript function.
_SOURCE = "fx_onnx.onnxscript"


def _separated(
    signature: ir.schemas.OpSignature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Separates the arguments of a call into inputs and attributes by the signature of the callee."""
    if signature is None:
        return list(args), dict(kwargs)
    rest, named = list(args), dict(kwargs)
    inputs: list[Any] = []
    attributes: dict[str, Any] = {}
    for parameter in signature.params:
        if isinstance(parameter, ir.schemas.Parameter):
            if parameter.variadic:
                inputs, rest = [*inputs, *rest], []
            else:
                inputs.append(rest.pop(0) if rest else named.pop(parameter.name, None))
        elif rest or parameter.name in named:
            attributes[parameter.name] = rest.pop(0) if rest else named.pop(parameter.name)
    if rest or named:
        raise TypeError(f"{signature.name} got arguments it does not have: {[*rest, *named]}")
    return inputs, attributes


class _EmittingEvaluator(evaluator.Evaluator):
    """An evaluator for onnxscript's eager mode that emits nodes instead of running them."""

    def __init__(self, op: Emitter) -> None:
        self._op = op

    def eval_op(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        inputs, attributes = _separated(op.op_signature, args, kwargs)
        domain, version = op.opset.domain, op.opset.version
        if not domain:
            check_meaning(op.name, version, self._op.opset)
        outputs = attributes.get("num_outputs") if op.name == "Split" and not domain else None
        return self._op.emit(op.name, *inputs, domain=domain, version=version, outputs=outputs, **attributes)

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return _call_script(function, self._op, *args, **kwargs)
