"""The cache of results of operators on fake tensors: results whose sizes are numbers are made in fewer steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fx_onnx.faster_tracing.plain_tensors import call_kernel
from fx_onnx.faster_tracing.replacement import Replacement
from fx_onnx.torch_internals.torch_private import FakeTensor

__all__ = ["REPLACEMENTS"]


def _make_result(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns the method that makes a tensor of an entry, for entries whose sizes are numbers.

    torch's method suppresses guards, of which numbers have none. It makes a tensor of the size of the entry, and a
    result of a view then takes the size, the strides and the memory that its argument has, so the first tensor needs no
    size; torch 2.15 does the same. Where the events of symbolic sizes are recorded, torch's method runs.
    """

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
            return FakeTensor(self, call_kernel(self, torch.empty_strided, shape, stride, **options), metadata.device)
        viewed = rest[-1][index]
        if not isinstance(viewed, FakeTensor):
            raise AssertionError("view_arg must be a FakeTensor")
        storage = viewed.untyped_storage()
        if type(storage.nbytes()) is not int:  # torch asks about the size of the storage
            return original(self, state, entry, key, *rest)

        def view() -> Any:
            return torch.empty_strided((), (), **options).set_(storage, metadata.storage_offset, shape, stride)

        return FakeTensor(self, call_kernel(self, view), metadata.device)

    return (result,)


_NUMBERS = frozenset({int})
_MODE = "torch._subclasses.fake_tensor:FakeTensorMode"
REPLACEMENTS = (
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
