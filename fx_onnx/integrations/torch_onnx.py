"""``replacing_torch_onnx``: the functions of torch.onnx export through fx_onnx, for programs that nobody edits."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from types import FunctionType, ModuleType
from typing import Any

import onnx_ir as ir
import torch
from onnxscript.rewriter.ort_fusions import optimize_for_ort

from fx_onnx.capture.diagnostics import HINT_OF_1
from fx_onnx.export import export
from fx_onnx.integrations.onnxscript_fusions import write_nodes_for_fusions
from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError, CaptureError, OnnxExporterError, UnsupportedOperatorError
from fx_onnx.messages.findings import collect_findings
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["replacing_torch_onnx"]


@contextmanager
def replacing_torch_onnx() -> Iterator[Counter[str]]:
    """Makes the functions of torch.onnx export through fx_onnx until the context ends, in all threads of the process.

    ``torch.onnx.export`` and ``torch.onnx.utils.export`` keep their arguments, and functions that a program imported
    before call fx_onnx too. Symbolic functions that are registered inside of the context are registered with fx_onnx,
    also after its end. ``dynamo_export``, its ``ExportOptions`` and ``OnnxRegistry``, and ``export_to_pretty_string``,
    which torch has removed, exist again. Before onnxscript's ``optimize_for_ort`` runs, which ``ort_fusions`` of
    transformers' exporter calls, the model gets the nodes that its fusions look for.

    Yields:
        How often each function was called, by its name, such as ``torch.onnx.export``.
    """
    calls: Counter[str] = Counter()
    with _LOCK:
        if not _ACTIVE:
            _replace()
        _ACTIVE.append(calls)
    try:
        yield calls
    finally:
        with _LOCK:
            _ACTIVE[:] = [counter for counter in _ACTIVE if counter is not calls]
            if not _ACTIVE:
                _REPLACED.close()


_LOCK = Lock()
_ACTIVE: list[Counter[str]] = []
"""The calls of each context that has not ended. Contexts of several threads end in any order."""
_REPLACED = ExitStack()
"""Restores torch.onnx when the last context ends."""


def _replace() -> None:
    with ExitStack() as stack:
        for path, replacement in _FUNCTIONS.items():
            stack.enter_context(_forwarded(path, replacement))
        for path, value in _CLASSES.items():
            stack.enter_context(_assigned(path, _resolved(value)))
        stack.enter_context(_with_nodes_for_fusions(optimize_for_ort))
        _REPLACED.push(stack.pop_all())


class OnnxRegistry:
    """The translations of ``torch.onnx.dynamo_export``, a class that torch removed: operator → function."""

    def __init__(self) -> None:
        self.table: dict[Callable[..., Any], Callable[..., Any]] = {}

    def register_op(
        self, function: Callable[..., Any], namespace: str, op_name: str, overload: str | None = None
    ) -> None:
        """Makes a function the translation of an operator, of all its overloads if none is named.

        Raises:
            ArgumentError: there is no such operator.
        """
        packet = getattr(getattr(torch.ops, namespace), op_name, None)
        operator = packet if overload is None else getattr(packet, overload, None)
        if operator is None:
            name = f"{namespace}::{op_name}" + (f".{overload}" if overload else "")
            raise ArgumentError(f"There is no operator {name}; import the library that defines it.")
        self.table[operator] = function


class ExportOptions:
    """The options of ``torch.onnx.dynamo_export``, which torch removed.

    Args:
        dynamic_shapes: True makes all dims dynamic that the model does not fix.
        onnx_registry: translations.
        options: the others. They have no meaning here, so each must be None or False.

    Raises:
        ArgumentError: another option is given.
    """

    def __init__(
        self, *, dynamic_shapes: bool | None = None, onnx_registry: OnnxRegistry | None = None, **options: Any
    ) -> None:
        self.dynamic_shapes = dynamic_shapes
        self.table = {} if onnx_registry is None else onnx_registry.table
        if given := [name for name, value in options.items() if value]:
            raise ArgumentError(f"fx_onnx has no export option {given[0]}; call torch.onnx.export instead.")


def dynamo_export(
    model: torch.nn.Module, /, *args: Any, export_options: ExportOptions | None = None, **kwargs: Any
) -> Any:
    """Exports with the arguments of the forward as its own, as ``torch.onnx.dynamo_export`` did.

    Raises:
        ArgumentError: the options are no ``ExportOptions``.
        OnnxExporterError: as for ``export``.
    """
    options = ExportOptions() if export_options is None else export_options
    if not isinstance(options, ExportOptions):
        raise ArgumentError(f"export_options must be torch.onnx.ExportOptions, not {shown(options)}.")
    shapes = _all_dynamic(model, args, kwargs) if options.dynamic_shapes else None
    return export(model, args, kwargs=kwargs, dynamic_shapes=shapes, custom_translation_table=options.table)


def _all_dynamic(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the dynamic shapes in which all dims of all tensors are dynamic."""
    try:
        arguments: Any = dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
    except (AttributeError, TypeError):  # export refuses a model without a forward, and arguments that do not fit it
        arguments = args
    return pytree.tree_map(
        lambda leaf: (
            dict.fromkeys(range(leaf.dim()), torch.export.Dim.AUTO) if isinstance(leaf, torch.Tensor) else None
        ),
        arguments,
    )


def _export(*args: Any, **kwargs: Any) -> Any:
    """Exports; an axis of size 1 with ``Dim.DYNAMIC`` may become static, because torch.onnx exports such models too.

    torch.onnx gives the axis the name of the axis that it broadcasts against, which is not true of the example. Nobody
    edits the program that asks for the TorchScript exporter, so a warning of it would not help.
    """
    try:
        with collect_findings(hidden=(MessageId.NO_TORCHSCRIPT_EXPORTER,)):
            return export(*args, **kwargs)
    except CaptureError as error:
        if error.id is not MessageId.DIM_CONFLICT or HINT_OF_1 not in str(error):
            raise
    hints, dim = kwargs["dynamic_shapes"], torch.export.Dim
    shapes = pytree.tree_map(lambda hint: dim.AUTO if hint == dim.DYNAMIC else hint, hints)
    return export(*args, **{**kwargs, "dynamic_shapes": shapes})


def _script_export(*args: Any, **kwargs: Any) -> Any:
    """Exports as ``torch.onnx.utils.export`` does, which is the TorchScript exporter."""
    return _export(*args, **{"dynamo": False, **kwargs})


_FUNCTIONS: dict[str, str | Callable[..., Any]] = {
    "torch.onnx:export": _export,
    "torch.onnx:dynamo_export": dynamo_export,
    "torch.onnx:export_to_pretty_string": "fx_onnx:export_to_pretty_string",
    "torch.onnx:register_custom_op_symbolic": "fx_onnx:register_custom_op_symbolic",
    "torch.onnx:unregister_custom_op_symbolic": "fx_onnx:unregister_custom_op_symbolic",
    "torch.onnx.testing:assert_onnx_program": "fx_onnx.testing:assert_onnx_program",
    "torch.onnx.utils:export": _script_export,
}
"""module:function → what is called instead; text is imported by the first call."""

_CLASSES: dict[str, type | str] = {
    "torch.onnx:ExportOptions": ExportOptions,
    "torch.onnx:ONNXProgram": "fx_onnx:ONNXProgram",
    "torch.onnx:OnnxRegistry": OnnxRegistry,
    "torch.onnx:OnnxExporterError": OnnxExporterError,
    "torch.onnx.errors:OnnxExporterError": OnnxExporterError,
    "torch.onnx.errors:UnsupportedOperatorError": UnsupportedOperatorError,
}
"""module:class → the class of that name meanwhile: a program catches the errors of fx_onnx, and knows its result."""


def _forwarded(path: str, replacement: str | Callable[..., Any]) -> Any:
    """Returns a context in which a function of torch.onnx calls the replacement and is counted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        for calls in tuple(_ACTIVE):
            calls[path.replace(":", ".")] += 1
        return _resolved(replacement)(*args, **kwargs)

    module, _, name = path.partition(":")
    function = getattr(importlib.import_module(module), name, None)
    if isinstance(function, FunctionType) and not function.__closure__:
        return _with_code_of_forward(function, call)
    return _assigned(path, call)


def _with_nodes_for_fusions(function: Any) -> Any:
    """Returns a context in which a function of onnxscript gets models with the nodes that its fusions look for."""
    original = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__

    def call(model: ir.Model, *args: Any, **kwargs: Any) -> Any:
        write_nodes_for_fusions(model)
        return original(model, *args, **kwargs)

    return _with_code_of_forward(function, call)


def _resolved(value: Any) -> Any:
    return pkgutil.resolve_name(value) if isinstance(value, str) else value


@contextmanager
def _with_code_of_forward(function: FunctionType, call: Callable[..., Any]) -> Iterator[None]:
    """Lets a function call another one: the function object stays, because programs hold it by ``from ... import``."""
    code, defaults = function.__code__, function.__kwdefaults__
    names: dict[str, Any] = vars(function)
    attributes = dict(names)
    names["__signature__"] = inspect.signature(function)  # what programs look for before they pass a keyword
    # Another thread may call the function meanwhile: either code finds its defaults.
    function.__kwdefaults__ = {**(defaults or {}), "_call": call}
    function.__code__ = _forward.__code__
    try:
        yield
    finally:
        function.__code__ = code
        function.__kwdefaults__ = defaults
        names.clear()
        names.update(attributes)


def _forward(*args: Any, _call: Callable[..., Any], **kwargs: Any) -> Any:
    """Is the code of the replaced functions. It reads no global name, because the globals are theirs."""
    return _call(*args, **kwargs)


@contextmanager
def _assigned(path: str, value: Any) -> Iterator[None]:
    """Gives a module an attribute, which it may have already."""
    module_name, _, name = path.partition(":")
    module: ModuleType = importlib.import_module(module_name)
    names = vars(module)
    had, before = name in names, names.get(name)
    setattr(module, name, value)
    try:
        yield
    finally:
        if had:
            setattr(module, name, before)
        else:
            delattr(module, name)
