"""A user's own translations: functions of our shape, onnxscript functions, functions made for torch.onnx."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import onnxscript
import torch
from onnxscript import evaluator

from fx_onnx.emitter import Emitter
from fx_onnx.errors import ArgumentError


def translations(custom: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """A custom_translation_table in this project's shape: FX target → function of the emitter and the ATen parameters.

    Three kinds of functions are taken. One whose first parameter is named ``op`` or annotated ``Emitter`` is used as it
    is. An ``@onnxscript.script`` function becomes a model-local function that the model calls. Any other is taken for
    one written for torch.onnx, whose body calls ``onnxscript.opsetNN``: those calls are emitted.

    Raises:
        ArgumentError: a key is not something an FX node can call, or a value is not callable.
    """
    result: dict[Any, Callable[..., Any]] = {}
    for target, function in custom.items():
        if not callable(function):
            raise ArgumentError(
                f"The translation of {target} in custom_translation_table must be a function, not {function!r}."
            )
        for overload in _targets(target):
            result[overload] = _adapted(function)
    return result


def _targets(target: Any) -> Sequence[Any]:
    """The FX targets a key names: an operator without an overload names all its overloads."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [getattr(target, overload) for overload in target.overloads()]
    if not callable(target):
        raise ArgumentError(
            f"A key of custom_translation_table must be what an FX node calls, such as torch.ops.aten.add.Tensor, "
            f"not {target!r}."
        )
    return [target]


def _adapted(function: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(function, onnxscript.OnnxFunction):
        return functools.partial(_call_script, function)
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and (parameters[0].name == "op" or parameters[0].annotation in (Emitter, "Emitter")):
        return function
    return functools.partial(_trace, function)


def _trace(function: Callable[..., Any], op: Emitter, *args: Any, **kwargs: Any) -> Any:
    """Runs a function written for torch.onnx; what it calls on onnxscript's opsets is emitted."""
    with evaluator.default_as(_EmittingEvaluator(op)):
        return function(*args, **kwargs)


def _call_script(function: onnxscript.OnnxFunction[..., Any], op: Emitter, *args: Any, **kwargs: Any) -> Any:
    """Emits a call of an onnxscript function, which becomes a local function of the model."""
    inputs, attributes = _separated(function.op_signature, args, kwargs)
    return op.call(_function_ir(function), *inputs, **attributes)


@functools.cache
def _function_ir(function: onnxscript.OnnxFunction[..., Any]) -> ir.Function:
    found: ir.Function = ir.serde.deserialize_function(function.to_function_proto())
    return found


def _separated(
    signature: ir.schemas.OpSignature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The inputs and the attributes among the arguments of a call, by the callee's signature."""
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
    """onnxscript's eager mode, with an emitter in the place of a runtime."""

    def __init__(self, op: Emitter) -> None:
        self._op = op

    def eval_op(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        inputs, attributes = _separated(op.op_signature, args, kwargs)
        return self._op.emit(op.name, *inputs, domain=op.opset.domain, **attributes)

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return _call_script(function, self._op, *args, **kwargs)
