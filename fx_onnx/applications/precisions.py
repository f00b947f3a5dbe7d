"""The precisions: what each makes of a module before the capture.

The module keeps its arguments, its results and their dtypes, so neither the export nor the layout knows of it. The
changed module is the exact reference of its export; how far it is from the original one is measured here.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Mapping
from contextvars import Context
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from fx_onnx.applications.layouts import PRECISIONS, Precision
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.tolerances import relative_distance
from fx_onnx.requests.pytrees import is_cache_part, register
from fx_onnx.torch_internals.threads import hook_in_this_thread
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["Converted", "convert", "quantizes"]


@dataclass(frozen=True)
class Converted:
    """A module in a precision.

    Attributes:
        module: a copy with the arguments and results of the original, or the original for fp32.
        kept: the names of the modules in it that keep float32, or weights that are not quantized.
        distance: the largest difference of its results from those of the original, relative to the largest result.
        rtol: the tolerance of ``verify``.
    """

    module: nn.Module
    kept: tuple[str, ...]
    distance: float
    rtol: float | None


@torch.no_grad()
def convert(module: nn.Module, kwargs: Mapping[str, Any], precision: str) -> Converted:
    """Returns a copy of a module in a precision.

    Args:
        module: in evaluation mode, with float32 weights. It does not change.
        kwargs: real arguments. They decide which modules keep float32, and how far the results are.
        precision: a name in ``PRECISIONS``.

    Raises:
        ArgumentError: torchao is not installed, or the results are not finite.
    """
    row, kept = PRECISIONS[precision], list[str]()
    if not row.half and row.config is None:
        return Converted(module, (), 0.0, row.rtol)
    converted = copy.deepcopy(module)
    register(dict(kwargs))
    expected, called = _run(module, kwargs)
    if row.half:
        kept += _halve(converted, module, kwargs)
        converted.__class__ = _limited(type(converted))
    if row.config is not None:
        kept += _quantize(converted, row, precision, called)
    distance = _distance(lambda: _run(converted, kwargs)[0], expected)
    if distance == float("inf"):
        raise ArgumentError(
            f"The precision {precision} does not fit the model, because its results on the example inputs are not "
            "finite; choose fp32.",
            id=MessageId.COMMAND_OPTION,
        )
    rtol = max(row.rtol or 0.0, 2 * distance) if row.rounds_activations else row.rtol
    return Converted(converted, tuple(kept), distance, rtol)


def _run(module: nn.Module, kwargs: Mapping[str, Any]) -> tuple[Any, set[str]]:
    """Returns the results of a module, and the names of the modules in it whose forward ran.

    A module that draws random numbers draws the same in each precision.
    """
    called = set[str]()
    hooks = [
        submodule.register_forward_pre_hook(hook_in_this_thread(lambda _, __, name=name: called.add(name)))
        for name, submodule in module.named_modules()
    ]
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return module(**copy.deepcopy(dict(kwargs))), called
    finally:
        for hook in hooks:
            hook.remove()


# ---------------------------------------------------------------- float16

_LIMIT = 1e-2
"""The largest difference of one layer in float16, relative to its largest result."""
_SUM_LIMIT = 0.1
"""The same for a module of several layers, whose roundings add up. An overflow or a wrong mask is larger."""


def _halve(half: nn.Module, original: nn.Module, kwargs: Mapping[str, Any]) -> list[str]:
    """Makes a copy of a module float16, except the smallest modules that are wrong in it. Returns their names.

    Buffers that are not stored, such as the frequencies of rotary embeddings, keep their dtype, as in transformers.
    """
    for tensor in half.state_dict(keep_vars=True).values():
        if isinstance(tensor, Tensor) and tensor.dtype == torch.float32:
            tensor.data = tensor.data.half()
    kept: dict[str, list[RemovableHandle]] = {}
    arguments: list[Any] = []

    def before(_: nn.Module, args: Any, kwargs: Any) -> None:
        arguments.append(copy.deepcopy((args, kwargs)))  # a cache is changed by the call

    def after(name: str, module: nn.Module, _: Any, __: Any, expected: Any) -> None:
        call = _cast(arguments.pop(), *_NARROWED)
        limit = _SUM_LIMIT if any(True for _ in module.children()) else _LIMIT
        halved = half.get_submodule(name)

        def is_wrong() -> bool:
            args, kwargs = copy.deepcopy(call)
            run = Context().run  # not for the collectors of the model
            return run(_distance, partial(halved, *args, **kwargs), expected) > limit

        if name in kept or not is_wrong():
            return
        inner = [path for path in kept if path.startswith(f"{name}.")]
        casts = _cast_within(halved, [path.removeprefix(f"{name}.") for path in inner])
        if is_wrong():
            for hook in (*casts, *(hook for path in inner for hook in kept.pop(path))):
                hook.remove()
            kept[name] = _keep(halved, module)

    named = [(name, submodule) for name, submodule in original.named_modules() if name]
    first = hook_in_this_thread(before)
    hooks = [submodule.register_forward_pre_hook(first, with_kwargs=True) for _, submodule in named]
    last = [(hook_in_this_thread(partial(after, name)), submodule) for name, submodule in named]
    hooks += [submodule.register_forward_hook(hook, with_kwargs=True) for hook, submodule in last]
    try:
        original(**copy.deepcopy(dict(kwargs)))
    finally:
        for hook in hooks:
            hook.remove()
    _cast_around(half, _NARROWED, _WIDENED, is_root=True)
    return list(kept)


class _Limits(TorchFunctionMode):
    """Takes the branch in which layers of transformers limit float16 values that are not all finite.

    Its condition is a value of the data, which no graph can ask. The branch limits values beyond 64,504 only, so finite
    results stay as they are but for the last 1,000 numbers of float16.
    """

    finite: Any = None
    condition: Any = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Returns that not all values are finite, if a layer asks."""
        if func is torch.Tensor.__bool__ and args[0] is self.condition:
            return False
        result = func(*args, **(kwargs or {}))
        if func is torch.isfinite and args[0].dtype == torch.float16:
            self.finite = result
        elif func is torch.Tensor.all and args[0] is self.finite:
            self.condition = result
        return result


def _limited(kind: type[nn.Module]) -> type[nn.Module]:
    """Returns a class whose forward runs with limits."""

    @wraps(kind.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _Limits():
            return kind.forward(self, *args, **kwargs)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _keep(half: nn.Module, original: nn.Module) -> list[RemovableHandle]:
    """Gives a module its float32 weights back. A weight that a module elsewhere shares is stored twice then."""
    fresh: dict[Tensor, nn.Parameter] = {}
    for path, weight in original.named_parameters(remove_duplicate=False):
        owner, _, name = path.rpartition(".")
        parameter = fresh.setdefault(weight, nn.Parameter(weight.detach(), requires_grad=False))
        setattr(half.get_submodule(owner), name, parameter)
    for path, buffer in original.named_buffers(remove_duplicate=False):
        owner, _, name = path.rpartition(".")
        setattr(half.get_submodule(owner), name, buffer)
    return _cast_around(half, _WIDENED, _NARROWED)


def _cast_within(module: nn.Module, kept: Collection[str]) -> list[RemovableHandle]:
    """Makes what the modules in a module take and return float16, but for those that keep float32.

    A float32 buffer, such as a table of positions, makes all float32 that is added to it, and a layer refuses it then.
    """
    named = [(name, submodule) for name, submodule in module.named_modules() if name]
    others = [submodule for name, submodule in named if not any(f"{name}.".startswith(f"{path}.") for path in kept)]
    return [hook for submodule in others for hook in _cast_around(submodule, _NARROWED, _NARROWED)]


_Change = tuple[torch.dtype, torch.dtype]
_NARROWED, _WIDENED = (torch.float32, torch.float16), (torch.float16, torch.float32)


def _cast_around(
    module: nn.Module, arguments: _Change, results: _Change, *, is_root: bool = False
) -> list[RemovableHandle]:
    """Casts the arguments and the results of a module. Within a model, a cache stays the object that the caller has."""
    cast = partial(_cast, with_caches=is_root)
    return [
        module.register_forward_pre_hook(lambda _, *call: cast(call, *arguments), with_kwargs=True),
        module.register_forward_hook(lambda _, __, result: cast(result, *results)),
    ]


def _cast(tree: Any, before: torch.dtype, after: torch.dtype, *, with_caches: bool = True) -> Any:
    def cast(leaf: Any) -> Any:
        return leaf.to(after) if isinstance(leaf, Tensor) and leaf.dtype == before else leaf

    return pytree.tree_map(cast, tree, is_leaf=None if with_caches else is_cache_part)


def _distance(run: Callable[[], Any], expected: Any) -> float:
    """Returns the largest relative difference of results; inf if one is not finite, or float16 has no kernel."""
    try:
        results = pytree.tree_leaves(run())
    except (RuntimeError, TypeError):
        return float("inf")
    return relative_distance(results, pytree.tree_leaves(expected))


# ---------------------------------------------------------------- integers


def quantizes(module: nn.Module, precision: str) -> bool:
    """Returns whether a precision quantizes a layer of a module."""
    row = PRECISIONS[precision]
    return row.config is not None and any(_fits(submodule, row) for submodule in module.modules())


def _fits(layer: Any, row: Precision) -> bool:
    if type(layer) not in (nn.Linear, _conv1d()):
        return False
    length = layer.in_features if type(layer) is nn.Linear else layer.nx
    # A row of one number needs a scale as large as itself, and torchao has no form for it.
    return length > 1 and length % row.block == 0 and bool(layer.weight.isfinite().all())


def _conv1d() -> Any:
    """Returns transformers' class of a Linear layer with a transposed weight, if it was imported."""
    return getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)


def _quantize(module: nn.Module, row: Precision, precision: str, called: Collection[str]) -> list[str]:
    """Quantizes the weights of Linear layers. Returns the names of those whose weight has no such form.

    A layer that is not called keeps its weight, because another function of the model reads it, as in WavLM.

    Raises:
        ArgumentError: torchao is not installed.
    """
    try:
        from torchao.quantization import quantize_
    except ImportError:
        raise ArgumentError(
            f"The precision {precision} needs the package torchao: pip install torchao.", id=MessageId.MISSING_PACKAGE
        ) from None
    _to_linear(module)
    layers = {name: layer for name, layer in module.named_modules() if type(layer) is nn.Linear}
    fitting = {name for name, layer in layers.items() if name in called and _fits(layer, row)}
    if row.config is not None:
        quantize_(module, row.config(), filter_fn=lambda _, name: name in fitting)
    return [name for name in layers if name not in fitting]


def _to_linear(module: nn.Module) -> None:
    """Makes transformers' Conv1D a Linear layer. Its hooks stay."""
    layer: Any
    for layer in module.modules():
        if type(layer) is _conv1d():
            layer.weight = nn.Parameter(layer.weight.detach().t().contiguous(), requires_grad=False)
            layer.in_features, layer.out_features = layer.nx, layer.nf
            layer.__class__ = nn.Linear
