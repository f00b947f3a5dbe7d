"""Functions written with onnxscript: a call of a script function, and the eager calls of a plain function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import onnxscript
from onnxscript import evaluator
from torch.fx.node import map_aggregate

from fx_onnx.onnx_model.schemas import check_meaning
from fx_onnx.sizes.symbolic_sizes import SymbolicNumber
from fx_onnx.translation.emitter import Emitter


def trace(function: Callable[..., Any], op: Emitter, *args: Any, **kwargs: Any) -> Any:
    """Runs a function for torch.onnx: its calls of onnxscript emit nodes, and symbolic numbers become values."""

    def value(argument: Any) -> Any:
        return op.symbols.value(op, argument, rank=0) if isinstance(argument, SymbolicNumber) else argument

    args, kwargs = map_aggregate(args, value), map_aggregate(kwargs, value)
    with evaluator.default_as(_EmittingEvaluator(op)):
        return function(*args, **kwargs)


def call_script(function: onnxscript.OnnxFunction[..., Any], op: Emitter, *args: Any, **kwargs: Any) -> Any:
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
    converted = ir.serde.deserialize_function(proto)
    converted.meta[_SOURCE] = function
    written_in = converted.opset_imports.get("")
    if written_in is not None:
        for node in ir.traversal.RecursiveGraphIterator(converted.graph):
            if not node.domain:
                check_meaning(node.op_type, written_in, op.opset)
        converted.opset_imports[""] = op.opset
    return converted


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
        return call_script(function, self._op, *args, **kwargs)
