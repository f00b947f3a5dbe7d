"""ONNX Runtime with its CPU provider, on a server, a desktop or a phone. It is the default target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fx_onnx.extension_points.rooms import find
from fx_onnx.extension_points.translation_table import Translation
from fx_onnx.passes.legalization.legalize import legalizations
from fx_onnx.passes.room_passes import QuantizedWeightPass
from fx_onnx.targets.target import Target

__all__ = ["ACCURACY_LEVEL_4", "ROUNDING_NOTE", "TARGET"]


def is_single(query: torch.Tensor) -> bool:
    """Returns whether a tensor is float32, the dtype of the kernel of com.microsoft.LinearAttention."""
    return query.dtype == torch.float32


def _linear_attention(
    op: Any, query: Any, key: Any, value: Any, decay: Any, beta: Any, state: Any, scale: float
) -> Any:  # fmt: skip
    """Emits com.microsoft.LinearAttention."""
    return find("translations", "linear attention")(op, query, key, value, decay, beta, state, scale)


def _causal_conv1d(op: Any, input: Any, weight: Any, bias: Any, past: Any) -> Any:
    """Emits Conv, which is faster than the runtime's CausalConvWithState (measured with 1.31.1)."""
    return find("translations", "causal convolution")(op, input, weight, bias, past)


TARGET = Target(
    name="onnxruntime",
    versions="ONNX Runtime 1.29 to 1.32, CPU provider",
    executed=True,
    table="onnxruntime",
    expands_functions=True,
    translations=(
        Translation("fx_onnx::linear_attention", _linear_attention, supports=is_single),
        Translation("fx_onnx::causal_conv1d", _causal_conv1d),
    ),
    legalizations=legalizations("onnxruntime"),
    fusions=(QuantizedWeightPass("split_affine_weights"), QuantizedWeightPass("fuse_matmul_nbits")),
    domains=("com.microsoft",),
)

ROUNDING_NOTE = "A product with a quantized weight rounds its other operand to 8 bits."

ACCURACY_LEVEL_4 = replace(
    TARGET,
    name="onnxruntime-accuracy-level-4",
    opset=21,  # the first one with blocks of weights, without which a weight of 4 bits has no MatMulNBits
    fusions=(
        QuantizedWeightPass("split_affine_weights"),
        QuantizedWeightPass("fuse_matmul_nbits", "fuse_matmul_nbits with rounding"),
    ),
    notes=(ROUNDING_NOTE,),
)
