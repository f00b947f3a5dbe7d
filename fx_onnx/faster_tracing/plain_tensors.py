"""Fake tensors whose sizes are numbers: made, copied and described for the cache of results in fewer steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from fx_onnx.faster_tracing.replacement import Replacement
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import FakeTensor

__all__ = ["REPLACEMENTS", "call_kernel", "is_plain"]

_SCALARS = frozenset({bool, int, float, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format})
_KEPT_ARGUMENTS = frozenset({"constant", "real_tensor", "pytype", "dispatch_keys"})
_MEMOS = ("nonzero_memo", "item_memo", "unique_memo", "unique_consecutive_memo", "nested_int_memo")
_EMPTY_MEMOS = dict.fromkeys(f"_{memo}{suffix}" for memo in _MEMOS for suffix in ("", "_vc", "_epoch"))


def is_plain(tensor: Any) -> bool:
    """Returns whether it is a strided fake tensor, of no subclass, whose sizes and strides are numbers."""
    return (
        type(tensor) is FakeTensor
        and not tensor._has_symbolic_sizes_strides
        and tensor.layout is torch.strided
        and not tensor.is_quantized
    )


def call_kernel(mode: Any, kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a kernel of the meta device with fake tensors, in the state of ``in_kernel_invocation_manager``."""
    before = mode.in_kernel_invocation
    if torch._C._meta_in_tls_dispatch_include() != before:
        raise AssertionError(f"{not before}, {before}")
    with torch._C._DisableTorchDispatch(), torch._C._PreserveDispatchKeyGuard():
        mode.in_kernel_invocation = True
        torch._C._set_meta_in_tls_dispatch_include(True)
        try:
            return kernel(*args, **kwargs)
        finally:
            mode.in_kernel_invocation = before


def _make_new(static: Any) -> Sequence[Callable[..., Any]]:
    """Returns ``FakeTensor.__new__`` that writes all attributes at once.

    For a mode, a tensor and a device, torch's function first asks which of its many forms of arguments it has. A CPU
    has no index to normalize. Then it sets 20 attributes, of which 15 are of memos that are empty. The attributes of a
    tensor in Python are in its ``__dict__``, and no class of it watches one that is set here, so ``update`` with the
    same items in the same order is equal. Modes that see functions would see what torch reads of the tensor, so torch's
    function runs where there is one.
    """
    original = static.__func__
    config = import_module("torch._subclasses.fake_tensor").FakeTensorConfig
    mode_type = import_module("torch._subclasses.fake_tensor").FakeTensorMode

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is not FakeTensor or len(args) != 3 or config.debug or torch._C._is_torch_function_mode_enabled():
            return original(cls, *args, **kwargs)
        mode, tensor, device = args
        if (
            type(mode) is not mode_type
            or not isinstance(tensor, torch.Tensor)
            or not tensor.is_meta
            or type(device) is not torch.device
            or device.type != "cpu"
            or (kwargs and not (kwargs.keys() <= _KEPT_ARGUMENTS and all(value is None for value in kwargs.values())))
        ):
            return original(cls, *args, **kwargs)
        made = torch.Tensor._make_subclass(
            cls, tensor, tensor.requires_grad, dispatch_device=True, device_for_backend_keys=device
        )
        if mode._allow_unsafe_data_ptr_access:
            torch._C._set_warn_deprecated_on_mutable_data_ptr(made)
        else:
            torch._C._set_throw_on_mutable_data_ptr(made)
        attributes = {"_fake_device": device, "fake_mode": mode, "constant": None, "pytype": None}
        made.__dict__.update(attributes, dispatch_keys=None, real_tensor=None, **_EMPTY_MEMOS)
        return made

    return (staticmethod(new),)


def _make_snapshot(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``snapshot_fake`` without generators as contexts.

    torch's function calls ``detach`` in two contexts. For a tensor that has no real tensor and no dispatch keys of its
    own, they are entered here, and the result is made as there.
    """
    detach = aten.detach.default

    def snapshot(val: Any, include_real: bool = False) -> Any:
        if type(val) is not FakeTensor or val.real_tensor is not None or val.dispatch_keys is not None:
            return original(val, include_real)
        mode = val.fake_mode
        with torch._C._DisablePythonDispatcher():
            copied = call_kernel(mode, detach, val)
        return FakeTensor(mode, copied, val.device)

    return (snapshot,)


def _make_key(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``_prep_args_for_hash`` that describes a tensor without the fields of a dataclass.

    The key of a result has, for each tensor, its fields one after the other, each number of a shape with its type. For
    a plain tensor, here are the same values in the same order. Sequences and numbers are as in torch's function, which
    gets all other arguments, one by one. ``suggest_memory_format`` has two results for 4 and 5 axes only.
    """
    suggested = import_module("torch._prims_common").suggest_memory_format
    contiguous = torch.contiguous_format

    def append_plain(result: list[Any], tensor: Any, storage_bytes: int) -> None:
        shape, stride = tensor.shape, tensor.stride()
        length = f"length_{len(shape)}"
        result += (tensor.dtype, torch.Size, length)
        for size in shape:
            result += (int, size)
        result += (tuple, length)
        for step in stride:
            result += (int, step)
        memory_format = suggested(tensor) if 4 <= len(shape) <= 5 else contiguous
        result += (
            tensor.device,
            torch.strided,
            memory_format if tensor.is_contiguous(memory_format=memory_format) else None,
            tensor.storage_offset(),
            storage_bytes,
            tensor.requires_grad,
            False,
            tensor.is_conj(),
            tensor.is_neg(),
            tensor.is_inference(),
            *(False, None, None, None),  # of sparse tensors
        )

    def key(self: Any, result: list[Any], args: Any, state: Any, id_hashed_objects: list[Any]) -> None:
        kind = type(args)
        if (kind is not tuple and kind is not list) or torch._C._is_torch_function_mode_enabled():
            original(self, result, args, state, id_hashed_objects)
            return
        result += (kind, f"length_{len(args)}")
        for arg in args:
            kind = type(arg)
            if kind in _SCALARS:
                result += (kind, arg)
            elif kind is tuple or kind is list:
                key(self, result, arg, state, id_hashed_objects)
            elif kind is FakeTensor and arg.fake_mode is self and arg.constant is None and is_plain(arg):
                storage_bytes = arg.untyped_storage().nbytes()
                if type(storage_bytes) is int:
                    append_plain(result, arg, storage_bytes)
                else:  # a row in the storage of a tensor whose sizes are symbolic
                    original(self, result, iter((arg,)), state, id_hashed_objects)
            else:
                original(self, result, iter((arg,)), state, id_hashed_objects)

    return (key,)


_FAKE = "torch._subclasses.fake_tensor"
REPLACEMENTS = (
    Replacement(
        (f"{_FAKE}:FakeTensor.__new__",),
        _make_new,
        "20 attributes are set one after the other, 15 of them by a descriptor.",
        repeats=(
            f"{_FAKE}:FakeTensor._normalize_fake_device",
            f"{_FAKE}:SymNumberMemoDescriptor.__set__",
            f"{_FAKE}:SymNumberMemoDescriptor._memo",
            f"{_FAKE}:SymNumberMemoDescriptor._memo_vc",
            f"{_FAKE}:SymNumberMemoDescriptor._memo_epoch",
        ),
    ),
    Replacement(
        ("torch.fx.experimental.proxy_tensor:snapshot_fake",),
        _make_snapshot,
        "Each value of a node is copied in contexts that are generators.",
        repeats=(f"{_FAKE}:in_kernel_invocation_manager", "torch._subclasses.fake_impls:fast_detach"),
    ),
    Replacement(
        (f"{_FAKE}:FakeTensorMode._prep_args_for_hash",),
        _make_key,
        "The description of each argument is taken apart, field by field.",
        repeats=(
            f"{_FAKE}:TensorMetadata._flatten_into",
            f"{_FAKE}:extract_tensor_metadata",
            f"{_FAKE}:FakeTensorMode.is_our_fake",
            "torch._prims_common:suggest_memory_format",
            "torch._prims_common:are_strides_like_channels_last_or_false",
            "torch._subclasses.meta_utils:is_sparse_any",
        ),
    ),
)
