"""Replacements for the layers of quantized checkpoints, whose own forwards call kernels that no export can express.

Each replacement computes with ``fx_onnx::dequantize``, so that the weight keeps its bits. Activations stay floats, as
where the library dequantizes the weights first. A row of docs/precision.md describes each format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, one_hot

from fx_onnx.capture.patches.patching import Patch
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.quantized_weights.weight_operators import dequantize, stored

__all__ = ["FORWARDS", "GGML_TYPES", "PATCHES", "fp8_weight", "refused"]

_REASON = "The original calls a kernel for packed weights, or unpacks them in each run."


def refused(layer: Any, form: str) -> CaptureError:
    """Returns the error for a layer whose weight has no exact form in ONNX."""
    return CaptureError(
        f"A {type(layer).__name__} has {form}, which has no exact form in ONNX; dequantize the model before the "
        "export, as dequantize() of a model of transformers does.",
        id=MessageId.QUANTIZED_MODULE,
    )


# --- FP8 of transformers ----------------------------------------------------------------------------------------------


def _exponents(scale: Tensor) -> Tensor:
    """Returns scales of E8M0 as their bytes; others as they are."""
    return stored("bytes", scale) if scale.dtype == torch.float8_e8m0fnu else scale


def fp8_weight(weight: Tensor, scale: Tensor, blocks: Any, dtype: torch.dtype) -> Tensor:
    """Returns a weight (…, n, k) with one scale, or one for each block of rows and columns."""
    scale = _exponents(scale)
    if blocks is None or scale.dim() < 2:
        return dequantize(weight, scale, dtype=dtype)
    rows, columns = blocks
    if rows > 1:  # ONNX has blocks along one axis
        scale, rows = stored("rows repeated", scale, numbers=(rows, weight.shape[-2])), 1
    return dequantize(weight, scale, blocks=[1] * (weight.dim() - 2) + [rows, columns], dtype=dtype)


def _fp8_or_fp4(weight: Tensor, scale: Tensor, blocks: Any, dtype: torch.dtype) -> Tensor:
    """Returns a weight (…, n, k) of 8-bit floats, or of 4-bit floats in int8, which have blocks of a row."""
    if weight.element_size() > 1:
        return weight
    if weight.dtype != torch.int8:
        return fp8_weight(weight, scale, blocks, dtype)
    numbers = stored("nibbles", stored("bytes", weight))
    sizes = [*(1 for _ in numbers.shape[:-1]), numbers.shape[-1] // scale.shape[-1]]
    return dequantize(numbers, _exponents(scale), blocks=sizes, kind="float4_e2m1", bits=4, dtype=dtype)


def _fp8_linear(self: Any, input: Tensor) -> Tensor:
    """Replaces ``FP8Linear.forward``."""
    weight = _fp8_or_fp4(self.weight, self.weight_scale_inv, self.block_size, input.dtype)
    return linear(input, weight, self.bias)


def _fp8_experts(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Replaces ``FP8Experts.forward``, which loops over the experts that a token chose: computes all experts.

    Args:
        self: The module.
        hidden_states: (tokens, size)
        top_k_index: The experts that each token chose, (tokens, chosen).
        top_k_weights: (tokens, chosen)
    """
    first = "gate_up_proj" if self.has_gate else "up_proj"
    up, down = (
        _fp8_or_fp4(getattr(self, name), getattr(self, f"{name}_scale_inv"), self.block_size, hidden_states.dtype)
        for name in (first, "down_proj")
    )
    inner = hidden_states @ up.transpose(1, 2)
    results = (self._apply_gate(inner) if self.has_gate else self.act_fn(inner)) @ down.transpose(1, 2)
    chosen = one_hot(top_k_index, self.num_experts + 1)[..., :-1] * top_k_weights.unsqueeze(-1)
    total: Tensor = (results.float() * chosen.sum(1).t().unsqueeze(-1)).sum(0).to(hidden_states.dtype)
    return total


def _fp8_embedding(self: Any, input: Tensor) -> Tensor:
    """Replaces ``FP8Embedding.forward``, which gathers 8-bit floats."""
    scale = self.weight_scale
    return embedding(input, dequantize(self.weight, scale, dtype=scale.dtype), self.padding_idx)


# --- BitNet -----------------------------------------------------------------------------------------------------------


def _bit_linear(self: Any, input: Tensor) -> Tensor:
    """Replaces ``BitLinear.forward``, whose weight is -1, 0 or 1; it rounds its input to 8 bits for each token."""
    input = input if self.rms_norm is None else self.rms_norm(input)
    scale = 127 / input.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    rounded = (input * scale).round().clamp(-128, 127)
    packed = stored("slots", self.weight, numbers=(2, 8, 4 * self.weight.shape[0], 0, 1))
    product = linear(rounded, dequantize(packed, torch.ones(()), bits=2, dtype=rounded.dtype))
    result: Tensor = product / (self.weight_scale * scale)
    return result if self.bias is None else result + self.bias


# --- GGUF -------------------------------------------------------------------------------------------------------------


_IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_Q4_K = 12
GGML_TYPES = frozenset({2, 3, 8, 10, 11, 12, 13, 14, 20})
"""The types of ggml with a form in ONNX: Q4_0, Q4_1, Q8_0, Q2_K to Q6_K and IQ4_NL (Source: ggml.h)."""


def _ggml_weight(self: Any, dtype: torch.dtype) -> Tensor:
    """Returns the weight of a layer, whose numbers by type of ggml are those of ggml-quants.c."""
    weight, kind = self.weight, self.ggml_type

    def part(form: str, *numbers: int) -> Tensor:
        return stored(f"ggml {form}", weight, numbers=numbers)

    def scales(integers: Tensor, start: int, size: int, groups: int, bits: int = 8) -> Tensor:
        """Returns a product of integers with the float16 number of their block of 256 elements."""
        half = part("half", size, start)
        return dequantize(integers, half, blocks=[1, groups], bits=bits, dtype=torch.float32)

    def result(numbers: Tensor, scale: Tensor, block: int, bits: int, **others: Any) -> Tensor:
        return dequantize(numbers, scale, blocks=[1, block], bits=bits, dtype=dtype, **others)

    match kind:
        case 2:
            return result(part("planes", 18, 2, 18, 4, 16, 8), part("half", 18, 0), 32, 4)
        case 3:
            return result(part("planes", 20, 4, 20, 4, 16), part("half", 20, 0), 32, 4, offset=part("half", 20, 2))
        case 8:
            return result(part("bytes", 34, 2, 34), part("half", 34, 0), 32, 8)
        case 10:
            scale, least = (scales(part("q2_k scales", high), 80 + 2 * high, 84, 16, 4) for high in (0, 1))
            return result(part("planes", 84, 16, 80, 2, 32), scale, 16, 2, offset=-least)
        case 11:
            return result(part("q3_k"), scales(part("q3_k scales"), 108, 110, 16), 16, 3)
        case 12 | 13:
            size, form, bits = (144, "q4_k", 4) if kind == _Q4_K else (176, "q5_k", 8)
            scale, least = scales(part("k scales", size, 0), 0, size, 8), scales(part("k scales", size, 1), 2, size, 8)
            return result(part(form), scale, 32, bits, offset=-least)
        case 14:
            return result(part("q6_k"), scales(part("bytes", 210, 192, 208), 208, 210, 16), 16, 8)
        case 20:
            table = torch.tensor(_IQ4_LEVELS, dtype=torch.float32)
            return result(part("planes", 18, 2, 18, 4, 16), part("half", 18, 0), 32, 4, kind="table", table=table)
    raise refused(self, f"a weight of ggml type {kind}")


def _gguf_linear(self: Any, x: Tensor) -> Tensor:
    """Replaces ``GgufLinear.forward``."""
    x = x if self.input_permutation is None else x.index_select(-1, self.input_permutation)
    return linear(x, _ggml_weight(self, x.dtype), self.bias)


def _gguf_embedding(self: Any, input_ids: Tensor) -> Tensor:
    """Replaces ``GgufEmbedding.forward``."""
    return embedding(input_ids, _ggml_weight(self, self.compute_dtype))


# --- HQQ --------------------------------------------------------------------------------------------------------------

_HQQ_SLOTS = {"8bit_u8": (8, 8), "4bit_u8": (4, 8), "2bit_u8": (2, 8), "1bit_u8": (1, 8), "3bit_32": (3, 30)}


def _hqq_linear(self: Any, x: Tensor) -> Tensor:
    """Replaces ``HQQLinear.forward``: (weight - zero) * scale, with zeros that are floats."""
    meta = self.meta
    if meta.get("quant_scale") or meta.get("quant_zero") or meta["view_as_float"] or "scale" not in meta:
        raise refused(self, "scales or zeros that are quantized, or a weight that is viewed as floats")
    bits, width = _HQQ_SLOTS[meta["packing"]]
    scale, zero, shape = meta["scale"], meta["zero"], tuple(meta["shape"])
    group = meta["group_size"] or shape[1 - meta["axis"]]
    rows = group if meta["axis"] == 0 else shape[0] * shape[1] // group
    numbers = stored("slots", self.W_q, numbers=(bits, width, rows, 1, 0))
    weight = dequantize(numbers, scale, zero, bits=4 if bits == 3 else max(bits, 2), dtype=self.compute_dtype)
    return linear(x, weight.reshape(shape), self.bias)


# --- bitsandbytes -----------------------------------------------------------------------------------------------------


def _linear_4bit(self: Any, x: Tensor) -> Tensor:
    """Replaces ``Linear4bit.forward``: a weight of indices into a table, in blocks of its flat elements."""
    state = getattr(self, "quant_state", None)
    if state is None or getattr(state, "packing_format_for_cpu", False):
        raise refused(self, "a weight that is packed for this processor (run the export before the model)")
    dtype = self.compute_dtype or x.dtype
    rows, columns = state.shape
    absmax, block = state.absmax, state.blocksize
    if state.nested:
        inner = state.state2
        absmax = dequantize(absmax, inner.absmax, blocks=[inner.blocksize], kind="table", table=inner.code,
                            dtype=torch.float32) + state.offset  # fmt: skip
    shape, blocks = [rows * columns], [block]
    if columns % block == 0:  # else blocks go on in the next row
        absmax, shape, blocks = absmax.reshape(rows, columns // block), [rows, columns], [1, block]
    numbers = stored("flat nibbles", self.weight, numbers=shape)
    weight = dequantize(numbers, absmax, blocks=blocks, kind="table", table=state.code, bits=4, dtype=dtype)
    bias = None if self.bias is None else self.bias.to(dtype)
    return linear(x.to(dtype), weight.reshape(rows, columns), bias).to(x.dtype)


def _linear_8bit(self: Any, x: Tensor) -> Tensor:
    """Replaces ``Linear8bitLt.forward``: rounds each row of x to 8 bits, but not the columns with an outlier."""
    state = self.state
    if state.has_fp16_weights or state.SCB is None:
        raise refused(self, "no scales outside of its weight (run the model once before the export)")
    product, inverse = 6.200124e-05, 7.874015718698502e-3  # the library's numbers for 1 / 127**2 and 1 / 127
    weight = dequantize(self.weight, (state.SCB * product).unsqueeze(-1), dtype=torch.float32)
    half = x.half()
    outliers = half.abs() >= (state.threshold or torch.inf)
    largest = half.masked_fill(outliers, 0).abs().amax(-1, keepdim=True).float()
    rounded = (half * (127 / largest)).round() * largest
    columns = outliers.flatten(0, -2).any(0)
    bias = None if self.bias is None else self.bias.float()
    return linear(torch.where(columns, x.float() * (inverse / product), rounded), weight, bias).to(x.dtype)


# --- quanto -----------------------------------------------------------------------------------------------------------


def _quanto_linear(self: Any, input: Tensor) -> Tensor:
    """Replaces ``QLinear.forward``."""
    weight = self.weight
    if self.activation_qtype is not None or not hasattr(weight, "_scale"):
        raise refused(self, "quantized activations, or a weight that is not frozen")
    scale, data = weight._scale, weight._data
    if not hasattr(weight, "_shift"):
        return linear(input, dequantize(data, scale, dtype=scale.dtype), self.bias)
    if not hasattr(data, "_bits") or weight.axis != 0:
        raise refused(self, "a weight that is packed for this processor")
    numbers = stored("slots", data._data, numbers=(data._bits, 8, data.shape[0], 0, 0))
    shift = weight._shift
    is_float = shift.dtype.is_floating_point
    zero, offset = (None, -shift) if is_float else (shift.to(torch.uint8), None)
    result = dequantize(numbers, scale, zero, offset=offset, bits=data._bits, dtype=scale.dtype)
    return linear(input, result.reshape(weight.shape), self.bias)


# --- Model-Optimizer --------------------------------------------------------------------------------------------------


def _compressed_linear(self: Any, input: Tensor) -> Tensor:
    """Replaces ``RealQuantLinear.forward``: a weight that ``compress`` of the library packed."""
    given, weight, scale = self.weight_quantizer, self.weight, self.weight_quantizer._scale
    sizes, bits = given._block_sizes or {}, given._num_bits
    form, block, rows = (bits, sizes.get("scale_bits")), sizes.get(-1), self.out_features
    if {*sizes} - {-1, "type", "scale_bits"} or (block and self.in_features % block):
        raise refused(self, "blocks of rows, or blocks of a row of which the last one is shorter")
    blocks = [1, block] if block else []
    match form:
        case (2, 1), (4, 3):
            numbers, scale = stored("nibbles", weight), dequantize(scale, given._double_scale, dtype=torch.float32)
            result = dequantize(numbers, scale, blocks=blocks, kind="float4_e2m1", bits=4, dtype=input.dtype)
        case 4, None if block:
            numbers, scale = stored("nibbles", weight, numbers=(1, 8)), (1 / scale).reshape(rows, -1)
            result = dequantize(numbers, scale, blocks=blocks, bits=4, dtype=input.dtype)
        case (4, 3) | 8, None:
            result = dequantize(weight, scale, blocks=blocks, dtype=input.dtype)
        case _:
            raise refused(self, f"a weight of num_bits={bits} and block_sizes={sizes}")
    return self.output_quantizer(linear(self.input_quantizer(input), result, self.bias))  # type: ignore[no-any-return]


_INTEGRATIONS = "transformers.integrations"
_OPTIMIZER = "modelopt.torch.quantization.nn.modules"
FORWARDS: Mapping[str, Callable[..., Tensor]] = {
    f"{_INTEGRATIONS}.finegrained_fp8:FP8Linear": _fp8_linear,
    f"{_INTEGRATIONS}.finegrained_fp8:FP8Embedding": _fp8_embedding,
    f"{_INTEGRATIONS}.finegrained_fp8:FP8Experts": _fp8_experts,
    f"{_INTEGRATIONS}.bitnet:BitLinear": _bit_linear,
    f"{_INTEGRATIONS}.gguf.utils:GgufLinear": _gguf_linear,
    f"{_INTEGRATIONS}.gguf.utils:GgufEmbedding": _gguf_embedding,
    "hqq.core.quantize:HQQLinear": _hqq_linear,
    "bitsandbytes.nn.modules:Linear4bit": _linear_4bit,
    "bitsandbytes.nn.modules:Linear8bitLt": _linear_8bit,
    "optimum.quanto.nn.qlinear:QLinear": _quanto_linear,
    f"{_OPTIMIZER}.quant_linear:RealQuantLinear": _compressed_linear,
}
"""The forward of each layer."""
PATCHES = tuple(Patch(f"{layer}.forward", forward, _REASON) for layer, forward in FORWARDS.items())
"""The replacements."""
