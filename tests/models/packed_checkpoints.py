"""Layers of quantized checkpoints as their libraries hold them, without the libraries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fx_onnx.quantized_weights.quantized_layers import FORWARDS

NF4 = torch.tensor(
    [-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
     0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0]
)  # fmt: skip


_FLOAT4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


class Layer(nn.Module):
    """A layer with parameters and attributes of a library's layer, whose forward is the replacement of its forward.

    Attributes:
        expected: the weight as the library dequantizes it.
    """

    def __init__(self, target: str, tensors: dict[str, Tensor], expected: Tensor, **attributes: Any) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
        self.target, self.expected, self.bias = target, expected, None
        vars(self).update(attributes)

    def forward(self, x: Tensor) -> Tensor:
        return FORWARDS[self.target](self, x)


def hqq(bits: int, group: int = 16, axis: int = 1) -> Layer:
    """Returns a HQQLinear (Source: hqq/core/quantize.py, bitpack.py): (weight - zero) * scale."""
    rows, columns = 20, 64
    groups = rows * columns // group
    shape = (group, groups) if axis == 0 else (groups, group)
    values = torch.randint(0, 2**bits, shape)
    slots = 10 if bits == 3 else 8 // bits
    step = -(-shape[0] // slots)
    padded = torch.zeros(step * slots, shape[1], dtype=torch.int64)
    padded[: shape[0]] = values
    packed = sum(padded[step * slot : step * (slot + 1)] << bits * (slots - 1 - slot) for slot in range(slots))
    assert isinstance(packed, Tensor)
    along = (1, groups) if axis == 0 else (groups, 1)
    scale, zero = torch.rand(along), torch.rand(along) * 2**bits
    meta = {
        "packing": "3bit_32" if bits == 3 else f"{bits}bit_u8", "view_as_float": False, "group_size": group,
        "axis": axis, "shape": (rows, columns), "scale": scale, "zero": zero,
    }  # fmt: skip
    weight = packed.to(torch.int32 if bits == 3 else torch.uint8)
    expected = ((values - zero) * scale).reshape(rows, columns)
    return Layer("hqq.core.quantize:HQQLinear", {"W_q": weight}, expected, meta=meta, compute_dtype=torch.float32)


def bitsandbytes(columns: int, nested: bool) -> Layer:
    """Returns a Linear4bit (Source: bitsandbytes/functional.py): indices into a table, in flat blocks of 64."""
    rows, block = 12, 64
    count = rows * columns
    codes, blocks = torch.randint(0, 16, (count,)), -(-count // block)
    packed = (codes[::2] << 4 | codes[1::2]).to(torch.uint8).reshape(-1, 1)
    absmax: Tensor = torch.rand(blocks)
    state: dict[str, Any] = {"absmax": absmax, "nested": nested}
    if nested:
        table, inner, offset = torch.rand(256), torch.rand(-(-blocks // 4)), torch.tensor(0.3)
        indices = torch.randint(0, 256, (blocks,), dtype=torch.uint8)
        absmax = table[indices.long()] * inner.repeat_interleave(4)[:blocks] + offset
        second = SimpleNamespace(absmax=inner, blocksize=4, code=table)
        state |= {"absmax": indices, "state2": second, "offset": offset}
    quant_state = SimpleNamespace(shape=(rows, columns), blocksize=block, code=NF4, **state)
    expected = (NF4[codes] * absmax.repeat_interleave(block)[:count]).reshape(rows, columns)
    return Layer(
        "bitsandbytes.nn.modules:Linear4bit", {"weight": packed}, expected, quant_state=quant_state, compute_dtype=None
    )


def quanto(kind: str) -> Layer:
    """Returns a frozen QLinear (Source: optimum/quanto/tensor), with 8 bits, or 4 or 2 bits in groups."""
    rows, columns, group = 12, 64, 16
    scale = torch.rand(rows, 1)
    weight = SimpleNamespace(_scale=scale, axis=0, shape=(rows, columns))
    if kind in ("int8", "float8"):
        numbers = torch.randint(-128, 128, (rows, columns)).to(torch.int8 if kind == "int8" else torch.float8_e4m3fn)
        expected, tensors = numbers.float() * scale, {"_data": numbers}
        weight._data = None
    else:
        bits, groups = int(kind[0]), rows * columns // group
        values, per_byte = torch.randint(0, 2**bits, (groups, group)), 8 // bits
        step = groups // per_byte
        packed = sum(values[step * slot : step * (slot + 1)] << bits * slot for slot in range(per_byte))
        assert isinstance(packed, Tensor)
        weight._scale, is_float = torch.rand(groups, 1), "float" in kind
        weight._shift = torch.rand(groups, 1) if is_float else torch.randint(0, 2**bits, (groups, 1)).to(torch.uint8)
        shifted = (
            values * weight._scale - weight._shift if is_float else (values - weight._shift.long()) * weight._scale
        )
        expected, tensors = shifted.reshape(rows, columns), {"_data": packed.to(torch.uint8)}
        weight._data = SimpleNamespace(_bits=bits, shape=(groups, group))
    return _Quanto("optimum.quanto.nn.qlinear:QLinear", tensors, expected, given=weight, activation_qtype=None)


class _Quanto(Layer):
    """Puts the parameter where the tensor subclass of quanto has it."""

    @property
    def weight(self) -> Any:
        if self.given is None:
            return torch.zeros(1)
        inner = vars(self.given) | (
            {"_data": self._data} if self.given._data is None
            else {"_data": SimpleNamespace(**vars(self.given._data), _data=self._data)}
        )  # fmt: skip
        return SimpleNamespace(**inner)


def model_optimizer(kind: str) -> Layer:
    """Returns a RealQuantLinear of Model-Optimizer (Source: modelopt/torch/quantization/qtensor)."""
    rows, columns, block = 12, 64, 16
    sizes: dict[Any, Any] = {-1: block, "type": "dynamic"}
    codes, bits, whole = torch.randint(0, 16, (rows, columns)), 4, torch.rand(())
    scale = torch.rand(rows, columns // block) + 0.1
    if kind == "nvfp4":
        bits, sizes["scale_bits"], scale = (2, 1), (4, 3), scale.to(torch.float8_e4m3fn)
        packed = codes[:, ::2] | codes[:, 1::2] << 4
        expected = _FLOAT4[codes] * (scale.float() * whole).repeat_interleave(block, 1)
    elif kind == "int4":
        packed, expected = codes[:, ::2] << 4 | codes[:, 1::2], (codes - 8) / scale.repeat_interleave(block, 1)
        scale = scale.reshape(-1, 1)
    else:
        sizes, scale, bits = {}, torch.rand(rows, 1) if kind == "int8" else torch.rand(()), 8
        packed = torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
        if kind == "fp8":
            bits, packed = (4, 3), torch.randn(rows, columns).to(torch.float8_e4m3fn)
        expected = packed.float() * scale
    given = SimpleNamespace(_num_bits=bits, _block_sizes=sizes, _scale=scale, _double_scale=whole)
    return Layer(
        "modelopt.torch.quantization.nn.modules.quant_linear:RealQuantLinear",
        {"weight": packed.to(torch.uint8) if kind in ("nvfp4", "int4") else packed}, expected, weight_quantizer=given,
        in_features=columns, out_features=rows, input_quantizer=lambda x: 2 * x, output_quantizer=lambda x: x / 2,
    )  # fmt: skip


def compressed(form: str, bits: int = 4, asymmetric: bool = False, strategy: str = "group") -> nn.Linear:
    """Returns a compressed Linear layer of compressed-tensors (Source: compressed_tensors/compressors).

    Its attribute ``expected`` is the weight as the library decompresses it.
    """
    rows, columns, group = 12, 64, 16
    layer: Any = nn.Linear(columns, rows, bias=False)
    del layer.weight
    groups = {"tensor": (1,), "channel": (rows, 1), "block": (3, 4)}.get(strategy, (rows, columns // group))
    scale = torch.rand(groups)
    full = scale.repeat_interleave(4, 0).repeat_interleave(16, 1) if strategy == "block" else (
        scale.repeat_interleave(group, 1) if strategy == "group" else scale
    )  # fmt: skip
    if form == "pack-quantized":
        half = 2 ** (bits - 1)
        values, zero = torch.randint(-half, half, (rows, columns)), torch.randint(-half, half, groups)
        tensors = {"weight_packed": _words(values + half, bits), "weight_scale": scale}
        if asymmetric:
            tensors["weight_zero_point"] = _words((zero + half).t(), bits).t().contiguous()
        expected = (values - (zero.repeat_interleave(group, 1) if asymmetric else 0)) * full
    elif form == "nvfp4-pack-quantized":
        codes, scale8, whole = torch.randint(0, 16, (rows, columns)), scale.to(torch.float8_e4m3fn), torch.rand(1) + 1
        packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
        tensors = {"weight_packed": packed, "weight_scale": scale8, "weight_global_scale": whole}
        expected = _FLOAT4[codes] * (scale8.float() / whole).repeat_interleave(group, 1)
    else:
        weight = torch.randn(rows, columns).to(torch.float8_e4m3fn) if form == "float-quantized" else torch.randint(
            -128, 128, (rows, columns), dtype=torch.int8
        )  # fmt: skip
        tensors = {"weight": weight, "weight_scale": scale}
        expected = weight.float() * full
    for name, tensor in tensors.items():
        layer.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
    given = SimpleNamespace(
        num_bits=bits, group_size=group if strategy == "group" else None,
        block_structure=[4, 16] if strategy == "block" else None,
    )  # fmt: skip
    layer.quantization_scheme = SimpleNamespace(
        weights=given, format=SimpleNamespace(value=form), input_activations=None, output_activations=None
    )
    layer.quantization_status, layer.expected = "compressed", expected
    result: nn.Linear = layer
    return result


def _words(values: Tensor, bits: int) -> Tensor:
    packed = []
    for row in values.tolist():
        whole = sum(value << (bits * index) for index, value in enumerate(row))
        words = [(whole >> shift) & 0xFFFFFFFF for shift in range(0, len(row) * bits, 32)]
        packed.append([word - 2**32 if word >= 2**31 else word for word in words])
    return torch.tensor(packed, dtype=torch.int32)
