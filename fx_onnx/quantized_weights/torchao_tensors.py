"""The weights of torchao whose tensor classes compute below the level at which torch.export looks into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, float32
from torch.nn.functional import linear

from fx_onnx.capture.patches.patching import Around, Patch
from fx_onnx.quantized_weights.weight_operators import dequantize, stored

__all__ = ["PATCHES"]


def _nvfp4_weight(weight: Any) -> Tensor:
    """Returns a weight of 4-bit floats in blocks of 16, whose scales are 8-bit floats and have a scale together."""
    rows, columns = weight.shape
    scale, form = weight.scale, "tiles of 128" if weight.is_swizzled_scales else "rows"
    scale = stored(form, scale, numbers=(rows, columns // weight.block_size))
    if weight.per_tensor_scale is not None:
        scale = dequantize(scale, weight.per_tensor_scale, dtype=float32)
    numbers = stored("nibbles", weight.qdata)
    sizes = [1, weight.block_size]
    return dequantize(numbers, scale, blocks=sizes, kind="float4_e2m1", bits=4, dtype=weight.orig_dtype)


def _with_nvfp4(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what replaces ``NVFP4Tensor.__torch_function__``."""

    def torch_function(function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        weight: Any = args[1] if function is linear and len(args) > 1 else None
        is_plain = hasattr(weight, "is_swizzled_scales") and weight.act_quant_kwargs is None
        if not is_plain or weight.dim() != 2 or weight.qdata.stride(-1) != 1:
            return original(function, types, args, *([kwargs] if kwargs else []))
        return linear(args[0], _nvfp4_weight(weight), *args[2:], **(kwargs or {}))

    return torch_function


PATCHES = (
    Patch(
        "torchao.prototype.mx_formats.nvfp4_tensor:NVFP4Tensor.__torch_function__",
        Around(_with_nvfp4),
        "The original passes the whole weight on, so the captured program has no plain tensors.",
    ),
)
"""The replacements."""
