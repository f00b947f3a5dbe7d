"""Lets transformers load checkpoints of 8-bit and 4-bit floats on a CPU as they are packed.

transformers has kernels for them on accelerators only, and dequantizes all weights elsewhere. An export needs no
kernel: ``quantized_layers`` replaces the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import reduce
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.quantized_weights.compressed_layers import keep_compressed
from fx_onnx.quantized_weights.quantized_layers import FORWARDS, GGML_TYPES
from fx_onnx.quantized_weights.weight_operators import dequantize, stored

__all__ = ["load_packed"]


def load_packed(load: Callable[[], Any]) -> Any:
    """Returns the model that ``load`` returns, perhaps with others, whose packed layers run without a kernel."""
    with ExitStack() as stack:
        for target, replacement in _REPLACED.items():
            module, _, path = target.partition(":")
            *owners, name = path.split(".")
            owner = reduce(lambda holder, part: getattr(holder, part, None), owners, _imported(module))
            if hasattr(owner, name):  # not in an older transformers
                stack.enter_context(replace_attribute(owner, name, replacement))
        result = load()
    model = result[0] if isinstance(result, tuple) else result
    keep_compressed(model)
    for module in model.modules():
        forward = FORWARDS.get(f"{type(module).__module__}:{type(module).__qualname__}")
        if forward is not None:
            module.__class__ = type(type(module).__name__, (type(module),), {"forward": forward})
    return result


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        return None


def _needs_nothing(self: Any, *_: Any, **__: Any) -> None:
    """Replaces ``validate_environment``, which asks for an accelerator, and dequantizes without one."""
    if not self.pre_quantized:
        raise ValueError("A model is quantized on an accelerator; load a checkpoint that is quantized already.")


# --- MXFP4 of gpt-oss -------------------------------------------------------------------------------------------------


def _use_packed_experts(self: Any, model: Any, **_: Any) -> None:
    """Replaces the hook of the quantizer that exchanges the experts."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if {"gate_up_proj", "down_proj"} <= child._parameters.keys() and child.gate_up_proj.dim() == 3:
                setattr(module, name, packed_experts(child))


def packed_experts(module: nn.Module) -> nn.Module:
    """Returns experts whose weights are packed as MXFP4, without values: (expert, row, block, 16) and their scales."""
    kind = type(module)
    packed: Any = type(f"Packed{kind.__name__}", (kind,), {name: _unpacked(name) for name in _PROJECTIONS})
    result = packed.__new__(packed)
    vars(result).update({**vars(module), "_parameters": dict(module._parameters)})
    for name in _PROJECTIONS:
        experts, inputs, outputs = result._parameters.pop(name).shape
        for suffix, sizes in (
            ("blocks", (experts, outputs, inputs // 32, 16)),
            ("scales", (experts, outputs, inputs // 32)),
        ):
            empty = torch.empty(sizes, dtype=torch.uint8, device="meta")
            result.register_parameter(f"{name}_{suffix}", nn.Parameter(empty, requires_grad=False))
    made: nn.Module = result
    return made


_PROJECTIONS = ("gate_up_proj", "down_proj")


def _unpacked(name: str) -> property:
    """Returns the weight (expert, input, output) of packed experts."""

    def weight(self: Any) -> Tensor:
        packed, scales = getattr(self, f"{name}_blocks"), getattr(self, f"{name}_scales")
        numbers = stored("joined nibbles", packed)
        dtype = getattr(self, f"{name}_bias").dtype
        floats = dequantize(numbers, scales, blocks=[1, 1, 32], kind="float4_e2m1", bits=4, dtype=dtype)
        return floats.transpose(1, 2)

    return property(weight)


class _Packed:
    """What the loader of GGUF asks of a kernel: whether it can take a type of ggml."""

    def supports(self, kind: int) -> bool:
        """Returns whether the type has a form in ONNX."""
        return kind in GGML_TYPES


_FILES = "transformers.quantizers.quantizer"
_MXFP4 = f"{_FILES}_mxfp4:Mxfp4HfQuantizer"
_REPLACED: Mapping[str, Callable[..., Any]] = {
    f"{_FILES}_finegrained_fp8:FineGrainedFP8HfQuantizer.validate_environment": _needs_nothing,
    f"{_MXFP4}.validate_environment": _needs_nothing,
    f"{_MXFP4}._process_model_before_weight_loading": _use_packed_experts,
    f"{_MXFP4}.get_load_operations": lambda self: {},
    f"{_FILES}_gguf:get_gguf_kernel": _Packed,
}
"""What is replaced in transformers while a model is loaded."""
