"""The values of nodes: fake tensors in the metadata, and what torch derives from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch.fx.passes.shape_prop import TensorMetadata

from fx_onnx.faster_tracing.plain_tensors import is_plain
from fx_onnx.faster_tracing.replacement import Replacement

__all__ = ["REPLACEMENTS"]

_SEQUENCES = (tuple, list)
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _make_tensor_metadata(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``_extract_tensor_metadata`` that asks C++ whether a tensor is contiguous.

    torch's functions in Python are, as they say, equivalent to those of ``TensorImpl.cpp``, which compute with numbers
    what the former also compute with symbols. Tensors with symbols go to torch's function. So do all tensors while a
    mode sees the calls of functions, because torch counts the calls that this function makes.
    """

    def tensor_metadata(result: Any, include_contiguity: bool = True) -> Any:
        if torch._C._is_torch_function_mode_enabled() or not include_contiguity or not is_plain(result):
            return original(result, include_contiguity)
        memory_format = None
        if result.is_contiguous():
            memory_format = torch.contiguous_format
        elif (other := _CHANNELS_LAST.get(result.ndim)) is not None and result.is_contiguous(memory_format=other):
            memory_format = other
        shape, stride = result.shape, result.stride()
        return TensorMetadata(shape, result.dtype, result.requires_grad, stride, memory_format, False, {})

    return (tensor_metadata,)


def _make_track(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``track_tensor_tree`` that hides its calls of functions from the modes of torch.export.

    To record a tensor, torch reads its attributes, and three modes of torch.export see each of these calls. Two of them
    only pass such a call on. The third counts the calls by function, and the name of a node may have the count. For the
    first tensor of a kind, torch's function runs as it does, and what it counts is noted. For the next tensor of this
    kind, the modes do not see the calls, and the same counts are added. Which calls torch makes depends on the kind
    alone: ``_kind`` has all that the function reads. Where any other mode is active, torch's function runs as it does.
    The inputs of a trace come as one sequence, of which torch records one after the other; so does this function.

    torch asks each size and stride whether it is a symbol that needs a node. A plain tensor has none, so only its proxy
    and its values are recorded, in the same order.
    """
    proxy_tensor = import_module("torch.fx.experimental.proxy_tensor")
    handler = import_module("torch._export.non_strict_utils")._NonStrictTorchFunctionHandler
    known = {handler, proxy_tensor.PreDispatchTorchFunctionMode, proxy_tensor.TorchFunctionMetadataMode}
    counted: dict[Any, tuple[dict[Any, int], Any]] = {}

    def record(tensor: Any, proxy: Any, constant: Any, tracer: Any) -> Any:
        if torch._C._is_torch_function_mode_enabled() or not _is_recorded_alone(tensor, proxy, constant):
            return original(tensor, proxy, constant=constant, tracer=tracer)
        proxy_tensor._set_unbacked_bindings(tensor, proxy)
        proxy_tensor.set_proxy_slot(tensor, tracer, proxy_tensor._ProxyTensor(proxy, constant))
        node = proxy.node
        node.meta["val"] = proxy_tensor.snapshot_fake(tensor, include_real=node.op == "placeholder")
        node.meta["tensor_meta"] = proxy_tensor._extract_tensor_metadata(tensor)
        return tensor

    def track(inner_res: Any, proxy_res: Any, *, constant: Any, tracer: Any) -> Any:
        if not torch._C._is_torch_function_mode_enabled() or constant is not None:
            return record(inner_res, proxy_res, constant, tracer)
        if type(inner_res) in _SEQUENCES and type(proxy_res) in _SEQUENCES and len(inner_res) == len(proxy_res):
            proxy_tensor._set_unbacked_bindings(inner_res, proxy_res)
            for value, proxy in zip(inner_res, proxy_res, strict=True):
                track(value, proxy, constant=None, tracer=tracer)
            return inner_res
        modes = torch.overrides._get_current_function_mode_stack()
        counting: Any = next(
            (mode.tracer for mode in modes if isinstance(mode, proxy_tensor.TorchFunctionMetadataMode)), None
        )
        is_known = known.issuperset(map(type, modes)) and len({*map(type, modes)}) == len(modes)
        kind = _kind(inner_res, proxy_res, len(modes)) if is_known and counting is not None else None
        if kind is None:
            return record(inner_res, proxy_res, None, tracer)
        counts = counting.torch_fn_counts
        if kind not in counted:
            before = Counter(counts)
            record(inner_res, proxy_res, None, tracer)
            counted[kind] = dict(Counter(counts) - before), counting.torch_fn_metadata
            return inner_res
        with torch._C.DisableTorchFunction():
            record(inner_res, proxy_res, None, tracer)
        added, last = counted[kind]
        for function, count in added.items():
            counts[function] = counts.get(function, 0) + count
        if added:
            counting.torch_fn_metadata = last
        return inner_res

    return (track,)


def _is_recorded_alone(tensor: Any, proxy: Any, constant: Any) -> bool:
    """Returns whether a tensor has one proxy, and no size of it needs one."""
    return (
        type(proxy) is torch.fx.Proxy and (constant is None or isinstance(constant, torch.Tensor)) and is_plain(tensor)
    )


def _kind(tensor: Any, proxy: Any, modes: int) -> Any:
    """Returns all that decides which functions torch calls to record a tensor; None if it is not known."""
    with torch._C.DisableTorchFunction():
        if not _is_recorded_alone(tensor, proxy, None) or tensor.is_conj() or tensor.is_neg():
            return None
        memory = tensor.shape, tensor.stride(), tensor.storage_offset()
        return modes, proxy.node.op, memory, tensor.dtype, tensor.fake_device, tensor.requires_grad, tensor.is_leaf


def _make_unbacked_bindings(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``_replace_unbacked_bindings`` that does not search for symbols where there are none.

    It searches the values of all nodes for the sizes that depend on data. A graph without such a size has no node with
    one, so only the old bindings are removed, as by torch's function.
    """
    symbols = import_module("torch.utils._sympy.symbol")
    of_data = (symbols.SymT.UNBACKED_INT, symbols.SymT.UNBACKED_FLOAT)
    shape_env_of = import_module("torch._export.utils")._get_shape_env_from_gm

    def unbacked_bindings(gm: Any) -> None:
        shape_env = shape_env_of(gm)
        if shape_env is None or any(symbols.symbol_is_type(symbol, of_data) for symbol in shape_env.var_to_range):
            original(gm)
            return
        for node in gm.graph.nodes:
            node.meta.pop("unbacked_bindings", None)

    return (unbacked_bindings,)


REPLACEMENTS = (
    Replacement(
        ("torch.fx.experimental.proxy_tensor:_extract_tensor_metadata",),
        _make_tensor_metadata,
        "Whether a tensor is contiguous is computed in Python, as for symbols.",
        repeats=(
            "torch.fx.passes.shape_prop:_extract_tensor_metadata",
            "torch._prims_common:is_contiguous_for_memory_format_or_false",
            "torch._prims_common:is_contiguous_for_memory_format",
            "torch._prims_common:is_contiguous",
            "torch._prims_common:check_contiguous_sizes_strides",
            "torch._prims_common:is_channels_last_contiguous_2d",
            "torch._prims_common:is_channels_last_contiguous_3d",
            "torch._subclasses.meta_utils:is_sparse_any",
        ),
    ),
    Replacement(
        ("torch.fx.experimental.proxy_tensor:track_tensor_tree",),
        _make_track,
        "Three modes see each attribute of a weight that torch reads, and each size is looked at.",
        repeats=(
            "torch.fx.experimental.proxy_tensor:TorchFunctionMetadataMode.__torch_function__",
            "torch.fx.experimental.proxy_tensor:PreDispatchTorchFunctionMode.__torch_function__",
            "torch._export.non_strict_utils:_NonStrictTorchFunctionHandler.__torch_function__",
            "torch._export.non_strict_utils:_NonStrictTorchFunctionHandler._override",
            "torch.fx.experimental.proxy_tensor:track_tensor",
            "torch.fx.experimental.proxy_tensor:_set_unbacked_bindings",
            "torch.fx.experimental.symbolic_shapes:compute_unbacked_bindings",
            "torch.fx.experimental.proxy_tensor:set_meta",
            "torch.fx.experimental.proxy_tensor:extract_val",
            "torch.fx.experimental.proxy_tensor:set_proxy_slot",
            "torch.fx.experimental.proxy_tensor:snapshot_fake",
            "torch._subclasses.fake_tensor:is_fake",
        ),
    ),
    Replacement(
        ("torch.export._trace:_replace_unbacked_bindings",),
        _make_unbacked_bindings,
        "The values of all nodes are searched for sizes that depend on data, also if there are none.",
        repeats=(
            "torch.fx.experimental.symbolic_shapes:_free_unbacked_symbols_with_path",
            "torch._export.utils:_get_shape_env_from_gm",
        ),
    ),
)
