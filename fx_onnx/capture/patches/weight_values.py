"""Tells Python the values of tensors that follow from weights only, as in ``if self.is_initialized:``.

torch.export treats each parameter and buffer as an input, whose values nobody knows. An ONNX model has them as
constants. So a condition or a number that follows from weights and constant tensors only is what it is at the export,
like one of a plain attribute. If the forward changes the weight, each call would need another program.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch
from torch.fx import Node

from fx_onnx.capture.patches import torch_functions
from fx_onnx.capture.patches.data_conditions import calling_frame, is_traced
from fx_onnx.capture.patches.module_hooks import watch_calls
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.source_lines import call_site, is_internal
from fx_onnx.torch_internals.torch_private import OpOverload, unset_fake_temporarily
from fx_onnx.torch_internals.trace_private import recorded_constant, recorded_node, undispatched

__all__ = ["WeightValues", "is_function", "is_written"]

_T: Any = torch.Tensor
_AS_CONDITIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.equal, _T.equal), torch_functions.equal),
    **dict.fromkeys((torch.allclose, _T.allclose), torch_functions.allclose),
    **dict.fromkeys((torch.is_nonzero, _T.is_nonzero), torch_functions.is_nonzero),
}
"""The functions of torch that return a bool to Python, and what they are with the conversion of a tensor to a bool."""
_READING = (_T.__bool__, _T.__int__, _T.__float__, _T.__index__, _T.item, _T.tolist, _T.data_ptr, *_AS_CONDITIONS)
"""The functions of torch that return values of tensors to Python, or their addresses, which are keys of dicts."""
_MAX_ELEMENTS = 2**16
_MAX_NODES = 256


_UNKNOWN = object()


class _UnknownError(Exception):
    """A tensor depends on an input, on random numbers, or on a weight that the forward has changed."""


class WeightValues:
    """Replaces functions of torch that return values to Python, during the trace of a module.

    Where the module runs again on tensors without values, each call has the answer of the same call in the trace.

    Attributes:
        replacements: the replacement of each function.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._given = {name: weight for name, weight in _weights(model) if _has_values(weight)}
        self._read: dict[Node, str] = {}  # the weights whose values have been told, and their names
        self._answers = defaultdict[Any, list[Any]](list)  # by the place of the call
        self._calls = Counter[Any]()  # in this run, by the place of the call
        self.replacements: dict[Any, Callable[..., Any]] = {func: partial(self._value, func) for func in _READING}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Begins a run with each forward of the module; a CaptureError tells that the forward changes what it read."""
        with watch_calls({self._model: self._run}):
            yield

    def _run(self, call: Callable[[], Any]) -> Any:
        self._calls.clear()
        result = call()
        for node, name in self._read.items():
            if is_written(node):
                raise CaptureError(
                    f"The model branches on the value of {name!r}, or makes a Python number of it, and changes it "
                    "later, so that each call would need another program; set it to its last value before the export.",
                    id=MessageId.BRANCH_ON_DATA,
                )
        return result

    def _value(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function with the values of its tensors if all are known, or else with the tensors.

        Only the code of a model gets values: the branches of a TorchScript module need numbers that stay symbolic.
        """
        frame = calling_frame()
        if is_internal(frame.f_code.co_filename):
            return function(*args, **kwargs)
        site = call_site(frame)
        answers, count = self._answers[site], self._calls[site]
        self._calls[site] += 1
        if count == len(answers):
            answers.append(self._answer(function, args, kwargs))
        if answers[count] is _UNKNOWN:
            return _AS_CONDITIONS.get(function, function)(*args, **kwargs)
        return answers[count]

    def _answer(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known: dict[Node, Any] = {}
        nodes = {index: recorded_node(value) for index, value in enumerate(args) if isinstance(value, torch.Tensor)}
        with unset_fake_temporarily(), undispatched(), torch.no_grad():
            try:
                values = [*args]
                for index, node in nodes.items():
                    if node is not None or not _has_values(args[index]):
                        values[index] = self._evaluated(node, known)
            except _UnknownError:
                return _UNKNOWN
            self._read |= {node: self._names[node] for node in known if node in self._names}
            return function(*values, **kwargs)

    @cached_property
    def _names(self) -> Mapping[Node, str]:
        """The names of the weights by their nodes. One that the forward has written to before has no such node."""
        nodes = ((recorded_node(weight), name) for name, weight in _weights(self._model) if name in self._given)
        return {node: name for node, name in nodes if node is not None and node.op == "placeholder"}

    def _evaluated(self, node: Node | None, known: dict[Node, torch.Tensor]) -> Any:
        """Returns the value of a node.

        Raises:
            _UnknownError: the value depends on more than weights, or is large.
        """
        if node is None or len(known) > _MAX_NODES or is_written(node):
            raise _UnknownError
        if node not in known:
            function: Any = node.target
            value: Any = None
            if node in self._names:
                value = self._given[self._names[node]]
            elif function is operator.getitem or is_function(function):
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda source: self._evaluated(source, known))
                value = function(*args, **kwargs)
            elif not _has_values(value := recorded_constant(node)):
                raise _UnknownError
            if isinstance(value, torch.Tensor) and value.numel() > _MAX_ELEMENTS and node not in self._names:
                raise _UnknownError
            known[node] = value
        return known[node]


def _weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _has_values(tensor: Any) -> bool:
    return not is_traced(tensor) and not tensor.is_meta


def is_function(target: Any) -> bool:
    """Returns whether an operator computes its results from its arguments alone, and writes to none of them."""
    return (
        isinstance(target, OpOverload)
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def is_written(node: Node) -> bool:
    """Returns whether a recorded call writes to the tensor of a node, or to a view of it."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        given = zip(schema.arguments if schema is not None else (), user.args, strict=False)
        aliases = [argument.alias_info for argument, arg in given if arg is node and argument.alias_info is not None]
        if any(alias.is_write for alias in aliases) or (aliases and is_written(user)):
            return True
    return False
