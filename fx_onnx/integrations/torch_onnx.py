"""``replacing_torch_onnx``: the functions of torch.onnx export through fx_onnx, for programs that nobody edits."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch

from fx_onnx.core.errors import ArgumentError, OnnxExporterError, UnsupportedOperatorError
from fx_onnx.core.torch_private import pytree
from fx_onnx.export import export

__all__ = ["replacing_torch_onnx"]


@contextmanager
def replacing_torch_onnx() -> Iterator[Counter[str]]:
    """Makes the functions of torch.onnx export through fx_onnx until the context ends, in all threads of the process.

    ``torch.onnx.export`` and ``torch.onnx.utils.export`` keep their arguments, and functions that a program imported
    before call fx_onnx too. Symbolic functions that are registered inside of the context are registered with fx_onnx,
    also after its end. ``dynamo_export``, its ``ExportOptions`` and ``export_to_pretty_string``, which torch has
    removed, exist again.

    Yields:
        How often each function was called, by its name, such as ``torch.onnx.export``.
    """
    calls: Counter[str] = Counter()
    with ExitStack() as stack:
        for path, replacement in _FUNCTIONS.items():
            stack.enter_context(_forwarded(path, replacement, calls))
        for path, value in _CLASSES.items():
            stack.enter_context(_assigned(path, value))
        yield calls


class ExportOptions:
    """The options of ``torch.onnx.dynamo_export``, which torch removed.

    Args:
        dynamic_shapes: True makes all dims dynamic that the model does not fix.
        options: the others. They have no meaning here, so each must be None.

    Raises:
        ArgumentError: another option than ``dynamic_shapes`` is given.
    """

    def __init__(self, *, dynamic_shapes: bool | None = None, **options: Any) -> None:
        self.dynamic_shapes = dynamic_shapes
        if given := [name for name, value in options.items() if value is not None]:
            raise ArgumentError(f"fx_onnx has no export option {given[0]}; call torch.onnx.export instead.")


def dynamo_export(
    model: torch.nn.Module, /, *args: Any, export_options: ExportOptions | None = None, **kwargs: Any
) -> Any:
    """Exports with the arguments of the forward as its own, as ``torch.onnx.dynamo_export`` did."""
    shapes = None
    if export_options is not None and export_options.dynamic_shapes:
        arguments = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        shapes = pytree.tree_map(
            lambda leaf: (
                dict.fromkeys(range(leaf.dim()), torch.export.Dim.AUTO) if isinstance(leaf, torch.Tensor) else None
            ),
            dict(arguments),
        )
    return export(model, args, kwargs=kwargs, dynamic_shapes=shapes)


def _script_export(*args: Any, **kwargs: Any) -> Any:
    """Exports as ``torch.onnx.utils.export`` does, which is the TorchScript exporter."""
    return export(*args, **{"dynamo": False, **kwargs})


_FUNCTIONS: dict[str, str | Callable[..., Any]] = {
    "torch.onnx:export": export,
    "torch.onnx:dynamo_export": dynamo_export,
    "torch.onnx:export_to_pretty_string": "fx_onnx:export_to_pretty_string",
    "torch.onnx:register_custom_op_symbolic": "fx_onnx:register_custom_op_symbolic",
    "torch.onnx:unregister_custom_op_symbolic": "fx_onnx:unregister_custom_op_symbolic",
    "torch.onnx.utils:export": _script_export,
}
"""module:function → what is called instead; text is imported by the first call."""

_CLASSES: dict[str, type] = {
    "torch.onnx:ExportOptions": ExportOptions,
    "torch.onnx:OnnxExporterError": OnnxExporterError,
    "torch.onnx.errors:OnnxExporterError": OnnxExporterError,
    "torch.onnx.errors:UnsupportedOperatorError": UnsupportedOperatorError,
}
"""module:class → the class of that name meanwhile: a program's handlers catch the errors of fx_onnx."""


def _forwarded(path: str, replacement: str | Callable[..., Any], calls: Counter[str]) -> Any:
    """Returns a context in which a function of torch.onnx calls the replacement and is counted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        calls[path.replace(":", ".")] += 1
        function = pkgutil.resolve_name(replacement) if isinstance(replacement, str) else replacement
        return function(*args, **kwargs)

    module, _, name = path.partition(":")
    function = getattr(importlib.import_module(module), name, None)
    if isinstance(function, FunctionType) and not function.__closure__:
        return _with_code_of_forward(function, call)
    return _assigned(path, call)


@contextmanager
def _with_code_of_forward(function: FunctionType, call: Callable[..., Any]) -> Iterator[None]:
    """Lets a function call another one: the function object stays, because programs hold it by ``from ... import``."""
    saved = function.__code__, function.__defaults__, function.__kwdefaults__
    names: dict[str, Any] = vars(function)
    attributes = dict(names)
    names["__signature__"] = inspect.signature(function)  # what programs look for before they pass a keyword
    function.__code__, function.__defaults__, function.__kwdefaults__ = _forward.__code__, None, {"_call": call}
    try:
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = saved
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
