"""Replacements for the layers of compressed-tensors, each of which has its forward as an attribute of the layer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from fx_onnx.capture.patches.patching import Patch, replace_attribute
from fx_onnx.quantized_weights.quantized_layers import fp8_weight, refused
from fx_onnx.quantized_weights.weight_operators import dequantize, stored

__all__ = ["PATCHES", "keep_compressed", "packed_forwards"]

_COMPRESSED = "compressed"
PATCHES = (
    Patch(
        "compressed_tensors.compressors:ModelCompressor.decompress_model",
        lambda self, model: None,
        "A hook of the model decompresses all weights in its first run.",
    ),
)
"""The replacements in the library."""


@contextmanager
def packed_forwards(model: nn.Module) -> Iterator[None]:
    """Makes the compressed layers of a model compute with their packed weights within the context."""
    with ExitStack() as stack:
        for module in _compressed(model):
            stack.enter_context(replace_attribute(module, "forward", partial(_forward, module)))
        yield


def keep_compressed(model: nn.Module) -> None:
    """Makes the compressed layers of a model run with their packed weights, which its first run would decompress."""
    hook: Any = getattr(model, "ct_decompress_hook", None)
    if hook is not None:
        hook.remove()
    for module in _compressed(model):
        module.forward = partial(_forward, module)


def _compressed(model: nn.Module) -> Iterator[nn.Module]:
    for module in model.modules():
        scheme: Any = getattr(module, "quantization_scheme", None)
        if scheme is not None and scheme.weights is not None and module.quantization_status == _COMPRESSED:
            yield module


def _forward(self: Any, input: Tensor) -> Tensor:
    """Replaces ``quantized_forward`` of a compressed layer."""
    scheme, enabled = self.quantization_scheme, getattr(self, "quantization_enabled", True)
    if enabled and scheme.input_activations:
        input = _rounded(self, input, "input", scheme.input_activations)
    weight = _weight(self, input.dtype if input.dtype.is_floating_point else torch.bfloat16)
    if isinstance(self, nn.Embedding):
        result = embedding(input, weight, self.padding_idx)
    else:
        result = linear(input, weight.to(input.dtype), self.bias)
    if enabled and scheme.output_activations:
        result = _rounded(self, result, "output", scheme.output_activations)
    return result


def _rounded(self: Any, value: Tensor, name: str, given: Any) -> Tensor:
    """Returns activations as the library rounds them."""
    library = sys.modules["compressed_tensors.quantization.lifecycle.forward"]
    result: Tensor = library.forward_quantize(self, value, name, given)
    return result


def _weight(self: Any, dtype: torch.dtype) -> Tensor:
    """Returns the weight of a compressed layer, in the dtype of its scales; one of 4-bit floats in ``dtype``."""
    given, form = self.quantization_scheme.weights, str(self.quantization_scheme.format.value)
    scale, zero = self.weight_scale, getattr(self, "weight_zero_point", None)
    is_embedding = isinstance(self, nn.Embedding)
    rows = self.num_embeddings if is_embedding else self.out_features
    columns = self.embedding_dim if is_embedding else self.in_features
    if hasattr(self, "weight_g_idx") or form not in _FORMS:
        raise refused(self, f"a weight in the format {form} of compressed-tensors")
    blocks = [1, given.group_size] if given.group_size else []
    if form == "pack-quantized":
        numbers = stored("words", self.weight_packed, numbers=(given.num_bits, columns, 1))
        if zero is not None and zero.dtype == torch.int32:  # that of a whole tensor is not packed
            zero = stored("words", zero, numbers=(given.num_bits, rows, 0))
        bits = 2 if given.num_bits < 3 else 4 if given.num_bits < 5 else 8
        return dequantize(numbers, scale, zero, blocks=blocks, bits=bits, dtype=scale.dtype)
    if form.endswith("fp4-pack-quantized"):
        if hasattr(self, "weight_global_scale"):
            scale = scale.float() / self.weight_global_scale
        numbers = stored("nibbles", self.weight_packed)
        return dequantize(numbers, scale, blocks=blocks, kind="float4_e2m1", bits=4, dtype=dtype)
    if zero is not None:
        return dequantize(self.weight, scale, zero, blocks=blocks, dtype=scale.dtype)
    return fp8_weight(self.weight, scale, given.block_structure or blocks or None, scale.dtype)


_FORMS = (
    "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
    "mxfp4-pack-quantized", "mxfp8-quantized",
)  # fmt: skip
"""The formats whose weights have a form in ONNX (Source: compressed_tensors.config.CompressionFormat)."""
