"""The table of all patches, and the context in which torch traces a model under them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import BuiltinFunctionType
from typing import Any

import torch

from fx_onnx.capture import export_flag
from fx_onnx.capture.patches import (
    dynamic_sizes,
    guard_places,
    layers,
    rounded_sizes,
    tensor_data,
    torch_export,
    torch_functions,
)
from fx_onnx.capture.patches.data_conditions import watch_conditions
from fx_onnx.capture.patches.module_hooks import watch_modules
from fx_onnx.capture.patches.patching import Around, Patch, apply_patches
from fx_onnx.capture.patches.weight_values import WeightValues
from fx_onnx.capture.python_state import ChangedValues, record_changed_values
from fx_onnx.capture.python_values import PythonState
from fx_onnx.extension_points.rooms import TABLE, find, is_installed
from fx_onnx.torch_internals.garbage import no_collection
from fx_onnx.torch_internals.threads import is_current
from fx_onnx.torch_internals.torch_private import list_python_builtins

__all__ = ["PATCHES", "Changes", "TraceRecord", "patched_torch"]

PATCHES: tuple[Patch, ...] = (
    *export_flag.PATCHES,
    *dynamic_sizes.PATCHES,
    *rounded_sizes.PATCHES,
    *guard_places.PATCHES,
    *torch_export.PATCHES,
    *torch_functions.PATCHES,
    *layers.PATCHES,
    *tensor_data.PATCHES,
)
"""What every trace replaces by name. Kernels of operators and what needs the model are in functions below."""

_REDIRECTED: Mapping[Any, Callable[..., Any]] = {
    torch.linalg.lstsq: torch_functions.lstsq,
    torch._assert: torch_functions.assert_,
}
"""The functions that torch lets a mode replace, so that their attributes stay as they are."""


@dataclass(frozen=True)
class Changes:
    """What a repeated trace does differently.

    Attributes:
        with_backward: Whether to record intermediate values for a backward pass.
        with_slices: Whether to slice a dynamic axis where the forward calls ``split`` or ``chunk``.
        without_grad: Whether to trace without autograd.
    """

    with_backward: bool = False
    with_slices: bool = False
    without_grad: bool = False


@dataclass(frozen=True)
class TraceRecord:
    """What a trace shows besides its graph. Strict mode shows none of it.

    Attributes:
        mode: The mode in which the forward runs.
        errors: What torch raised for conditions on data.
        changed_values: The values of Python that the forward changed.
    """

    mode: AbstractContextManager[Any] = field(default_factory=nullcontext)
    errors: Sequence[Exception] = ()
    changed_values: ChangedValues | None = None


@contextmanager
def patched_torch(model: torch.nn.Module, strict: bool, changes: Changes) -> Iterator[TraceRecord]:
    """Applies all patches that the trace of a model needs within the context, in the current thread.

    Args:
        model: The module that torch.export traces.
        strict: Whether torch.export traces in strict mode. It traces the bytecode of replacements too, so only those
            that act around the trace, or that dynamo can trace, apply there.
        changes: What the trace does differently from the first one.

    Raises:
        CaptureError: The forward has written to a view that has no form as a view.
    """
    with ExitStack() as stack:
        record = _apply(stack, model, strict, changes)
        yield record
        if isinstance(record.mode, dynamic_sizes.TraceMode):
            record.mode.refuse_lost_writes()


@no_collection()  # what the first export imports here is as large as torch
def _apply(stack: ExitStack, model: torch.nn.Module, strict: bool, changes: Changes) -> TraceRecord:
    """Applies the patches of a model's trace until the stack ends."""
    if not strict:
        list_python_builtins()
    for function in (export_flag.is_in_onnx_export, is_current):  # dynamo, which this loads, cannot trace into them
        torch.compiler.assume_constant_result(function)
    modules = tuple(model.modules())
    patches = [
        patch
        for patch in (*PATCHES, *_library_patches(modules, strict))
        if patch.strict in (None, strict) and (patch.layer is None or any(isinstance(m, patch.layer) for m in modules))
    ]
    enter = stack.enter_context
    if not strict and is_installed("faster_tracing"):
        enter(find("capture", "faster tracing")())
    enter(apply_patches(patches))
    for attribute in TABLE["forwards"]:
        if any(hasattr(module, attribute) for module in modules):
            enter(find("forwards", attribute)(model))
    enter(dynamic_sizes.replace_kernels())
    enter(torch_functions.refuse_gradients_of_weights(model))
    if changes.with_backward:
        enter(find("capture", "backward passes")())
    enter(watch_modules(model, strict))
    if strict:
        stack.callback(PythonState(model).restore)
        return TraceRecord()
    weights = WeightValues(model)
    enter(weights.watched())
    pieces = dynamic_sizes.pieces_as_slices() if changes.with_slices else {}
    mode = dynamic_sizes.TraceMode({**_REDIRECTED, **_redirected(modules), **weights.replacements, **pieces})
    enter(watch_conditions(model, mode.errors))
    return TraceRecord(mode, mode.errors, enter(record_changed_values(model)))


# --- libraries --------------------------------------------------------------------------------------------------------


def _library_patches(modules: Iterable[torch.nn.Module], strict: bool) -> Iterator[Patch]:
    """Yields the replacements in libraries, whose room is imported when a replaced function is first called."""
    for target in TABLE["patches"]:
        if target.partition(":")[0] in sys.modules:
            patch = Patch(target, Around(partial(_replaced_when_called, target)), "")
            # Strict mode traces the code of replacements.
            yield _library_patch(target) if strict or patch.attribute is None else patch
    files = {type(module).__module__ for module in modules}
    defined = chain.from_iterable(vars(sys.modules[file]) for file in files if file.startswith("transformers."))
    if function := next(iter(TABLE["recurrences"].keys() & set(defined)), None):
        yield from find("recurrences", function)(modules)


def _library_patch(target: str) -> Patch:
    patches: Iterable[Patch] = find("patches", target)
    return next(patch for patch in patches if patch.target == target)


def _replaced_when_called(target: str, original: Callable[..., Any]) -> Any:
    """Returns a function that calls the replacement of a library's function in the same place."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return _library_patch(target).replacement_of(original)(*args, **kwargs)

    # An instance does not bind a function in C, and would bind this one.
    return staticmethod(call) if isinstance(original, BuiltinFunctionType) else call


def _redirected(modules: Iterable[torch.nn.Module]) -> Mapping[Any, Callable[..., Any]]:
    """Returns the functions that a mode replaces for the files of models."""
    files = {type(module).__module__.rpartition(".")[2] for module in modules} & TABLE["redirected"].keys()
    return {name: function for file in files for name, function in find("redirected", file).items()}
