"""A request → torch.export.ExportedProgram, with what became of every dim that was asked to be dynamic.

torch.export captures without strict mode first, then in strict mode where that may mend the failure. Dims of example
size 0 or 1, which torch fixes, are captured from larger examples: torch.export reads sizes, never values.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from fx_onnx.capture import dynamic_dims, pytrees
from fx_onnx.capture.diagnostics import contradicts_dims, explanation, not_printed
from fx_onnx.capture.dynamic_dims import InputTensor, Specialized, input_tensors
from fx_onnx.capture.export_flag import exporting, is_in_onnx_export
from fx_onnx.capture.patches import control_flow, packed_sequences, torchvision, transformers
from fx_onnx.capture.patches.dynamic_sizes import dynamic_sizes
from fx_onnx.capture.patches.fake_quantize import settled_quantizers
from fx_onnx.capture.patches.patching import Patches, patches_applied
from fx_onnx.capture.request import Request, TensorInput
from fx_onnx.core.autocast_off import autocast_disabled
from fx_onnx.core.errors import CaptureError, warn
from fx_onnx.core.events import EventSink, IgnoredEvents
from fx_onnx.core.torch_private import pytree, size_oblivious


@dataclass(frozen=True)
class Capture:
    """The captured program.

    Attributes:
        exported_program: as torch.export returns it, not decomposed.
        symbol_names: the expression of a dynamic dim as torch prints it (`s17`, `2*s17`) to the user's name for it.
        specialized: the dims asked to be dynamic that came out static.
        strategy: how it was captured: `given`, `torch.export(strict=False)` or `torch.export(strict=True)`.
    """

    exported_program: ExportedProgram
    symbol_names: Mapping[str, str]
    specialized: tuple[Specialized, ...]
    strategy: str


def capture(request: Request, events: EventSink | None = None) -> Capture:
    """Captures the model of a request; an ExportedProgram is taken as it is.

    Warns (OnnxExporterWarning) of a module in training mode, of each dim asked to be dynamic that came out static or
    only within limits, and of two dim names that turn out to be one dim.

    Args:
        request: what to capture.
        events: receives why torch.export ran more than once.

    Raises:
        CaptureError: torch.export could not; the cause is its first error.
    """
    events = events or IgnoredEvents()
    if isinstance(request.model, ExportedProgram):
        program, strategy = request.model, "given"
        events.decided("capture", "skipped: the model is an ExportedProgram")
    else:
        if request.model.training:
            warn(f"{type(request.model).__name__} is in training mode; call model.eval() first unless that is meant.")
        with settled_quantizers(request.model):
            program, strategy = _capture_module(request, request.model, events)
    tensors = input_tensors(request, program)
    symbol_names, clashes = dynamic_dims.symbol_names(tensors)
    specialized = tuple(dynamic_dims.specialized(tensors))
    limits = dynamic_dims.limits(request, program, tensors)
    for message in (*clashes, *map(str, specialized), *map(str, limits)):
        warn(message)
    return Capture(program, symbol_names, specialized, strategy)


# --- attempts ---------------------------------------------------------------------------------------------------------


_TIMES = 4  # as large as the example are those that must have no part of size 0 or 1


@dataclass(frozen=True)
class _Example:
    """Example arguments to capture from.

    Attributes:
        oblivious: has torch treat sizes 0 and 1 like any other.
        registers: makes the dataclasses and caches that the forward returns known to torch.export.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    oblivious: bool = False
    registers: bool = False


def _capture_module(request: Request, model: torch.nn.Module, events: EventSink) -> tuple[ExportedProgram, str]:
    captured = first = _capture_from_examples(request, model, strict=False)
    strict = isinstance(first, Exception) and _strict_may_mend(first)
    if strict:
        events.decided("capture", f"repeated in strict mode, because non-strict mode raised {type(first).__name__}")
        captured = _capture_from_examples(request, model, strict=True)
    if isinstance(captured, ExportedProgram):
        captured, strict = _least_fixed(request, model, captured, strict, events)
        captured.example_inputs = (request.args, request.kwargs)
        return captured, f"torch.export(strict={strict})"
    error = first if isinstance(first, Exception) else captured
    raise CaptureError(explanation(model, error)) from error


def _least_fixed(
    request: Request, model: torch.nn.Module, program: ExportedProgram, strict: bool, events: EventSink
) -> tuple[ExportedProgram, bool]:
    """A capture that fixes less than ``program``, where it is the example or the way of tracing that fixes dims.

    A part of the example may have size 1 by chance, as ``x[2:]`` of 3 rows has; all dynamic dims are then captured
    larger. A forward that makes plain numbers of sizes, as ``int(0.7 * len(x))`` does, keeps them in strict mode.
    """
    fixed = dynamic_dims.fixed(request, program)
    if fixed.by_example:
        places = {(i, axis): _TIMES for i, asked in enumerate(request.inputs) for axis in asked.axes}
        other = _attempt(request, model, _enlarged(request, places), strict)
        if isinstance(other, ExportedProgram) and dynamic_dims.holds_for_example(request, other):
            captures = (program, fixed), (other, dynamic_dims.fixed(request, other))
            program, fixed = min(captures, key=lambda each: each[1].count)
            if program is other:
                events.decided(
                    "capture", "repeated with a larger example, because the example specialized dynamic dims"
                )
    if fixed.by_numbers and not strict:
        other = _attempt(request, model, _Example(request.args, request.kwargs), True)
        if isinstance(other, ExportedProgram) and dynamic_dims.fixed(request, other).count < fixed.count:
            events.decided("capture", "repeated in strict mode, because non-strict mode specialized dynamic dims")
            return other, True
    return program, strict


def _capture_from_examples(request: Request, model: torch.nn.Module, strict: bool) -> ExportedProgram | Exception:
    """The first capture that keeps the requested dims of size 0 and 1 dynamic, else that from the example as it is."""
    small = _small_axes(request)
    for example in _examples_for(request, small) if small else ():
        program = _attempt(request, model, example, strict)
        if isinstance(program, ExportedProgram) and _are_dynamic(small, input_tensors(request, program), program):
            return program
    return _attempt(request, model, _Example(request.args, request.kwargs), strict)


def _attempt(request: Request, model: torch.nn.Module, example: _Example, strict: bool) -> ExportedProgram | Exception:
    """One capture, with its Dims relaxed where the model contradicts them; a failure is returned, as a value to judge.

    The forward is the user's code and may raise anything.
    """
    if strict:  # cannot trace into a ContextVar; the mark is set here, not at import, where it loads all of dynamo
        torch.compiler.assume_constant_result(is_in_onnx_export)
    failure: Exception
    for dynamic_shapes in (request.dynamic_shapes, _relaxed(request.dynamic_shapes)):
        try:
            with (
                exporting(),
                not_printed(),
                _sizes_as_symbols(example.oblivious),
                patches_applied(*_patches(strict)),
                transformers.scans_kept(),
                dynamic_sizes(strict),
                autocast_disabled() as as_before,
                _as_traced(model, example, request.inputs, as_before),
            ):
                return torch.export.export(
                    model, example.args, example.kwargs, dynamic_shapes=dynamic_shapes, strict=strict
                )
        except Exception as error:
            failure = error
        if "Suggested fixes:" not in str(failure):
            break
    if "in output, which is not a known type" in str(failure) and not example.registers:
        return _attempt(request, model, replace(example, registers=True), strict)
    return failure


def _patches(strict: bool) -> tuple[Patches, ...]:
    """All that stands for something; strict mode, which reads bytecode, sees through those of torch's own functions."""
    of_torch = () if strict else (control_flow.PATCHES, packed_sequences.PATCHES)
    return (torchvision.PATCHES, transformers.patches(), *of_torch)


def _relaxed(dynamic_shapes: Any) -> Any:
    """Each Dim as Dim.AUTO: torch then infers the range, relation or constant that it would have suggested."""
    return pytree.tree_map_only(Dim, lambda _: Dim.AUTO, dynamic_shapes)


def _strict_may_mend(error: Exception) -> bool:
    """False for what comes out the same however the forward is traced: its own errors and contradicted dims."""
    plain = (LookupError, AttributeError, NameError, AssertionError, ImportError, ArithmeticError)
    return not isinstance(error, plain) and not contradicts_dims(str(error))


@contextmanager
def _as_traced(
    model: torch.nn.Module,
    example: _Example,
    inputs: tuple[TensorInput, ...],
    as_before: Callable[[], AbstractContextManager[Any]],
) -> Iterator[None]:
    """Wraps the forward while it is captured, where torch.export needs to be told something.

    `**kwargs` stand as parameters of their own names: torch.export checks dynamic shapes against `kwargs` as one
    argument and then reads them by each keyword, so that no spelling satisfies it. Dims of one name are made one dim.
    Autocast that is on around the export is a region of the forward.
    """
    forward, signature = model.forward, inspect.signature(model.forward)
    by_kind = {parameter.kind: parameter for parameter in signature.parameters.values()}
    var_keyword = by_kind.get(inspect.Parameter.VAR_KEYWORD)
    own = [parameter for parameter in signature.parameters.values() if parameter is not var_keyword]
    extra = [name for name in example.kwargs if name not in signature.parameters] if var_keyword else []
    shared = _shared_names(inputs)
    if not extra and not shared and not example.registers and as_before is nullcontext:
        yield
        return

    def explicit(*args: Any, **kwargs: Any) -> Any:
        if shared:
            _unify(shared, (args, kwargs))
        with as_before():
            result = forward(*args, **kwargs)
        if example.registers:
            pytrees.register(result)
        return result

    own += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in extra]
    explicit.__signature__ = signature.replace(parameters=own) if extra else signature  # type: ignore[attr-defined]
    instance_forward = vars(model).get("forward")
    vars(model)["forward"] = explicit
    try:
        yield
    finally:
        del vars(model)["forward"]
        if instance_forward is not None:
            vars(model)["forward"] = instance_forward


def _shared_names(inputs: tuple[TensorInput, ...]) -> list[list[tuple[int, int]]]:
    """The (tensor, axis) pairs of each dim name that more than one tensor has."""
    places: dict[str, list[tuple[int, int]]] = {}
    for number, asked in enumerate(inputs):
        for axis, name in asked.axes.items():
            if name is not None:
                places.setdefault(name, []).append((number, axis))
    return [pairs for pairs in places.values() if len(pairs) > 1]


def _unify(shared: list[list[tuple[int, int]]], tree: Any) -> None:
    """States that dims of one name are equal, which torch cannot know where no operator compares them."""
    tensors = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    for (first, axis), *others in shared:
        for number, other in others:
            torch._check(tensors[first].shape[axis] == tensors[number].shape[other])


# --- sizes 0 and 1 ----------------------------------------------------------------------------------------------------


def _small_axes(request: Request) -> dict[tuple[int, int], str | None]:
    """The axes asked to be dynamic whose example size is 0 or 1, which torch fixes: (tensor, axis) to dim name."""
    tensors = (leaf for leaf in pytree.tree_leaves((request.args, request.kwargs)) if isinstance(leaf, torch.Tensor))
    return {
        (number, axis): name
        for number, (tensor, asked) in enumerate(zip(tensors, request.inputs, strict=True))
        for axis, name in asked.axes.items()
        if tensor.shape[axis] in (0, 1)
    }


def _examples_for(request: Request, small: Mapping[tuple[int, int], str | None]) -> Iterator[_Example]:
    """Examples that keep small axes dynamic: larger by name, larger alike (two names may be one dim), oblivious."""
    tensors = [leaf for leaf in pytree.tree_leaves((request.args, request.kwargs)) if isinstance(leaf, torch.Tensor)]
    taken = {size for tensor in tensors for size in tensor.shape}
    unlike = (size for size in itertools.count(5) if size not in taken)  # so that no two dims are equal by chance
    by_name = dict(zip(dict.fromkeys(small.values()), unlike, strict=False))
    yield _enlarged(request, {place: by_name[name] for place, name in small.items()})
    if len(by_name) > 1:
        yield _enlarged(request, dict.fromkeys(small, next(unlike)))
    yield _Example(request.args, request.kwargs, oblivious=True)


def _enlarged(request: Request, sizes: Mapping[tuple[int, int], int]) -> _Example:
    numbers = itertools.count()

    def enlarge(tensor: torch.Tensor) -> torch.Tensor:
        number = next(numbers)
        for axis in range(tensor.ndim):
            if size := sizes.get((number, axis)):
                tensor = torch.cat([tensor.detach()] * size, axis) if tensor.shape[axis] else _zeros(tensor, axis, size)
        return tensor

    args, kwargs = pytree.tree_map_only(torch.Tensor, enlarge, (request.args, request.kwargs))
    return _Example(args, kwargs)


def _zeros(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    return tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])


def _sizes_as_symbols(oblivious: bool) -> AbstractContextManager[Any]:
    """Has torch keep dims of example size 0 and 1 symbolic, if asked.

    There is no public switch. It is not the first choice because torch then guesses what a branch on the size does: a
    TransformerEncoderLayer with batch 1 comes out with a batch of 1 in its results.
    """
    return size_oblivious() if oblivious else nullcontext()


def _are_dynamic(
    small: Mapping[tuple[int, int], str | None], tensors: list[InputTensor], program: ExportedProgram
) -> bool:
    """Whether the axes are symbols with a range beyond 0 to 2: torch gives that to one which it has in fact fixed."""
    sizes = [tensors[number].dim(axis) for number, axis in small]
    ranges = (program.range_constraints.get(dim) for dim in sizes if not isinstance(dim, int))
    return not any(isinstance(dim, int) for dim in sizes) and all(r is None or r.upper > 2 for r in ranges)
