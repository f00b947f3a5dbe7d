"""Symbolic functions as translations: ``symbolic(g, x, alpha)``, as torch.onnx's TorchScript exporter defined them.

A symbolic function may return None: it declines the call, and the next translation or a decomposition is used. This is
decided before the call is translated, by a trial run that emits into a temporary graph.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import onnx_ir as ir
import torch
from torch.autograd import Function
from torch.fx.node import map_aggregate

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.compat.jit_scalar_type import JitScalarType
from fx_onnx.compat.symbolic_graph import Call, GraphContext, SymbolicValue, unwrapped, wrapped
from fx_onnx.compat.torch_errors import SymbolicValueError
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes.symbolic_sizes import static
from fx_onnx.torch_internals.torch_private import TYPE_INFERENCE, OpOverload, argument_kinds
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.size_values import SymbolTable

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


@dataclass(frozen=True)
class SymbolicFunction:
    """A symbolic function as the translation of one target.

    Attributes:
        function: takes the graph, then the arguments.
        target: the operator, or the autograd.Function. A function receives all arguments of an operator, in the order
            of its schema and with the defaults; dtypes, layouts and memory formats arrive as the numbers that
            TorchScript has for them. The arguments of an autograd.Function arrive as they were given to ``apply``.
        is_python_op: whether it was registered for ``prim::PythonOp``. Such a function receives the tensors among the
            arguments, and the function's name and module as keywords.
        opset: the opset of the trial run.
    """

    function: Callable[..., Any]
    target: OpOverload | type[Function]
    opset: int
    is_python_op: bool = False

    @property
    def name(self) -> str:
        """The name in messages."""
        name = getattr(self.function, "__name__", repr(self.function))
        is_method = isinstance(self.target, type) and getattr(self.target, "symbolic", None) is self.function
        return f"{self.target.__name__}.symbolic" if is_method else str(name)

    def __call__(self, op: Emitter, *args: Any, **kwargs: Any) -> Any:
        """Translates a call; takes the arguments of a translation. Returns None if the function declines the call."""
        arguments = tuple(wrapped(argument, op) for argument in self._all_arguments(args, kwargs))
        for argument, kind in zip(arguments, argument_kinds(self.function), strict=False):
            if isinstance(argument, SymbolicValue):
                argument.reads_weights = kind not in ("v", "none")
        call = Call(self.target, arguments, tuple(op.out))
        keywords = self._keywords(call)
        if self.is_python_op:
            arguments = tuple(argument for argument in arguments if isinstance(argument, SymbolicValue))
        # The emitter infers the types, and TorchScript takes only its own nodes.
        with replace_attribute(*TYPE_INFERENCE, lambda *_: None):
            try:
                result = unwrapped(self.function(GraphContext(op, call), *arguments, **keywords))
            except SymbolicValueError as error:
                argument = re.search(r"'onnx::Constant' for argument '(\w+)'", str(error))
                if argument is None:
                    raise
                raise ValueError(  # torch.onnx's parse_args tells of TorchScript's nodes
                    f"its argument {argument[1]} must be a constant, but the model computes it (is a quantizer not "
                    "calibrated?)"
                ) from error
        if isinstance(result, list):
            return [_in_precision_of(op, *pair) for pair in zip_longest(result, op.out[: len(result)])]
        return _in_precision_of(op, result, op.out[0]) if op.out else result

    def declines(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], results: Sequence[Any]) -> bool:
        """Returns whether the function returns None for a call with these fake tensors and symbolic numbers.

        Returns False for an error, because the translation raises it again and then names the call.
        """
        op = Emitter(ir.Graph((), (), nodes=(), opset_imports={"": self.opset}), self.opset, SymbolTable())
        op.enter("trial", {}, tuple(results))

        def value(argument: Any) -> Any:
            return _input(op, argument) if isinstance(argument, torch.Tensor) else argument

        args, kwargs = map_aggregate(args, value), map_aggregate(dict(kwargs), value)
        try:
            return self(op, *args, **kwargs) is None
        except Exception:
            return False

    def check_arguments(self) -> None:
        """Raises ArgumentError if the function cannot take the arguments of an operator."""
        if not isinstance(self.target, OpOverload):
            return
        try:
            inspect.signature(self.function).bind("g", *self.target._schema.arguments)
        except TypeError as error:
            raise ArgumentError(
                f"The symbolic function {self.name} cannot take the arguments of {self.target._schema}: {error}.",
                id=MessageId.CUSTOM_TRANSLATION,
            ) from None

    def _all_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        if not isinstance(self.target, OpOverload):
            return args
        names = [argument.name for argument in self.target._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return [
            _torchscript_constant(given.get(argument.name, argument.default_value))
            for argument in self.target._schema.arguments
        ]

    def _keywords(self, call: Call) -> dict[str, Any]:
        """Returns the keyword arguments for which the function has parameters."""
        keywords: dict[str, Any] = {}
        if self.is_python_op and isinstance(self.target, type):
            keywords = {"name": self.target.__name__, "module": self.target.__module__, "inplace": 0}
        elif isinstance(self.target, OpOverload) and _returns_one_list(self.target):
            keywords = {"_outputs": len(call.results)}
        parameters = inspect.signature(self.function).parameters.values()
        if keywords and any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            return keywords
        names = {parameter.name for parameter in parameters if parameter.kind not in _VARIADIC}
        return {name: value for name, value in keywords.items() if name in names}


def _in_precision_of(op: Emitter, value: Any, result: Any) -> Any:
    """Returns a float as the float dtype of the operator's result, which TorchScript's files assume without a Cast."""
    if isinstance(value, ir.Value) and value.dtype is not None and isinstance(result, torch.Tensor):
        dtype = dtypes.onnx_dtype(result.dtype)
        if value.dtype.is_floating_point() and dtype.is_floating_point():
            return op.cast(value, dtype)
    return value


def _returns_one_list(operator: OpOverload) -> bool:
    returns = operator._schema.returns
    return len(returns) == 1 and str(returns[0].type) == "List[Tensor]"


def _torchscript_constant(argument: Any) -> Any:
    """Returns the number that TorchScript has for a dtype, a layout or a memory format; any other argument as it is."""
    if isinstance(argument, torch.dtype):
        return int(JitScalarType.from_dtype(argument))
    if isinstance(argument, torch.memory_format):
        return _MEMORY_FORMATS.index(argument)
    return 0 if argument is torch.strided else argument


def _input(op: Emitter, fake: torch.Tensor) -> ir.Value:
    """Returns a new input of the graph of a trial run."""
    value = ir.Value(name=op.names.fresh("input"), type=ir.TensorType(dtypes.onnx_dtype(fake.dtype)))
    sizes = tuple(map(static, fake.shape))
    value.shape = ir.Shape([op.symbols.dim(size) for size in sizes])
    op.with_sizes(value, sizes)
    op.symbols.define_sizes(value, sizes)
    op.graph.inputs.append(value)
    return value
