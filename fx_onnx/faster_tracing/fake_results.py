"""The cache of results of operators on fake tensors: results are made in fewer steps, and checked without sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch

from fx_onnx.faster_tracing.plain_tensors import call_kernel
from fx_onnx.faster_tracing.replacement import Replacement
from fx_onnx.torch_internals.torch_private import FakeTensor

__all__ = ["REPLACEMENTS"]


def _make(info: Callable[..., Any], output: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns the methods that make an entry and a result of an entry; a result that is only checked is a scalar.

    torch makes a result of each new entry, compares the dispatch keys of this result with those of the first one, and
    drops it. The keys follow from the dtype, the layout, the device, the gradient and the bits for a conjugate and a
    negative, not from the sizes, so a scalar has the same keys. The symbolic sizes would be computed while guards are
    suppressed: for symbols that inputs have, this changes nothing but caches. If a size depends on data, it may fail,
    and a trace may record the arithmetic: then torch's methods run as they do.
    """
    has_data_sizes = import_module("torch.fx.experimental.symbolic_shapes").has_free_unbacked_symbols
    proxy_mode = import_module("torch.fx.experimental.proxy_tensor").get_proxy_mode
    checking: list[Any] = []

    def entry(self: Any, state: Any, key: Any, func: Any, args: Any, kwargs: Any, output: Any) -> Any:
        is_symbolic = type(output) is FakeTensor and output._has_symbolic_sizes_strides
        if not is_symbolic or proxy_mode() is not None or has_data_sizes(output):
            return info(self, state, key, func, args, kwargs, output)
        checking.append(key)
        try:
            return info(self, state, key, func, args, kwargs, output)
        finally:
            checking.pop()

    def result(self: Any, state: Any, entry: Any, key: Any, *rest: Any) -> Any:
        if checking and checking[-1] is key and (metadata := entry.output_infos[0].metadata) is not None:
            scalar = replace(metadata, shape=(), stride=(), storage_offset=0, storage_bytes=None)
            entry = replace(entry, output_infos=(replace(entry.output_infos[0], metadata=scalar, view_idx=None),))
            rest = (*[None] * (len(rest) - 1), rest[-1])  # no operator, because a view takes the memory of its argument
        return output(self, state, entry, key, *rest)

    return entry, result


def _make_result(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns the method that makes a tensor of an entry, for entries whose sizes are numbers.

    torch's method suppresses guards, of which numbers have none. It makes a tensor of the size of the entry, and a
    result of a view then takes the size, the strides and the memory that its argument has, so the first tensor needs no
    size; torch 2.15 does the same. Where the events of symbolic sizes are recorded, torch's method runs.
    """
    make = torch.empty_strided

    def result(self: Any, state: Any, entry: Any, key: Any, *rest: Any) -> Any:
        metadata = entry.metadata
        if (
            metadata is None
            or entry.inplace_idx is not None
            or metadata.layout is not torch.strided
            or metadata.is_conj
            or metadata.is_neg
            or (self.shape_env is not None and self.shape_env.should_record_events)
            or not {*map(type, metadata.shape), *map(type, metadata.stride), type(metadata.storage_offset)} <= _NUMBERS
        ):
            return original(self, state, entry, key, *rest)
        shape, stride, index = metadata.shape, metadata.stride, entry.view_idx
        options = {"dtype": metadata.dtype, "device": "meta", "requires_grad": metadata.requires_grad}
        if index is None:
            return FakeTensor(self, call_kernel(self, make, shape, stride, **options), metadata.device)
        viewed = rest[-1][index]
        if not isinstance(viewed, FakeTensor):
            raise AssertionError("view_arg must be a FakeTensor")
        storage = viewed.untyped_storage()

        def view() -> Any:
            return make((), (), **options).set_(storage, metadata.storage_offset, shape, stride)

        return FakeTensor(self, call_kernel(self, view), metadata.device)

    return (result,)


_NUMBERS = frozenset({int})
_MODE = "torch._subclasses.fake_tensor:FakeTensorMode"
REPLACEMENTS = (
    Replacement(
        (f"{_MODE}._get_output_info_for_cache_entry", f"{_MODE}._output_from_cache_entry"),
        _make,
        "To check a new entry of the cache, a tensor with its symbolic sizes is made and dropped.",
        repeats=(
            f"{_MODE}._make_cache_entry",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv._evaluate_expr",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv.suppress_guards",
            "torch.fx.experimental.symbolic_shapes:has_free_unbacked_symbols",
        ),
    ),
    Replacement(
        (f"{_MODE}._get_output_tensor_from_cache_entry",),
        _make_result,
        "Each result is made in three contexts that are generators, also if its sizes are numbers.",
        repeats=(
            "torch._subclasses.fake_tensor:in_kernel_invocation_manager",
            "torch._subclasses.meta_utils:is_sparse_any",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv._suppress_guards_enter",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv._suppress_guards_exit",
            "torch.fx.experimental.symbolic_shapes:ShapeEnv.suppress_guards",
            "torch.fx.experimental.symbolic_shapes:_suppress_guards",
        ),
    ),
)
