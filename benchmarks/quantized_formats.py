"""Exports layers that the libraries of quantized checkpoints write, and compares them with the library's own weights.

Usage: python -m benchmarks.quantized_formats [SEEDS]. It needs compressed-tensors, hqq, optimum-quanto, bitsandbytes,
gguf, torchao, nvidia-modelopt and transformers, and leaves out those that are not installed. GPTQ and AWQ are written
from their formats. It prints, for each format and each opset, the ONNX operators, the bytes for each weight, and the
largest difference of the results, relative to the largest result. Shapes, groups, outliers, tiny scales and codes of
NaN are random.
"""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

import fx_onnx
from tests.models.packed_layers import AwqLinear, GptqLinear

Made = tuple[nn.Module, Tensor]
OPSETS = (18, 21, 23, 25)


def weight_of(rows: int, columns: int) -> Tensor:
    """Returns a weight, in a third of the cases with outliers, in another third tiny."""
    weight = torch.randn(rows, columns) * 0.05
    kind = random.randrange(3)
    if kind == 1:
        weight[random.randrange(rows), random.randrange(columns)] = 1e3
    return weight * 1e-34 if kind == 2 else weight


def compressed(**given: Any) -> Callable[[int, int, int], Made]:
    """Returns what makes a layer of compressed-tensors."""

    def make(rows: int, columns: int, group: int) -> Made:
        from compressed_tensors.compressors import compress_module, decompress_module
        from compressed_tensors.quantization import (
            QuantizationArgs,
            QuantizationConfig,
            QuantizationScheme,
            apply_quantization_config,
        )
        from compressed_tensors.quantization.utils import calculate_qparams

        sizes = {"group_size": group} if given["strategy"] == "group" and "group_size" not in given else {}
        args = QuantizationArgs(**given, **sizes)
        model = nn.Sequential(nn.Linear(columns, rows)).eval()
        model[0].weight.data = weight_of(rows, columns)
        groups = {"a": QuantizationScheme(targets=["Linear"], weights=args)}
        apply_quantization_config(model, QuantizationConfig(config_groups=groups))
        layer: Any = model[0]
        ranges, whole = extremes(layer.weight, args), getattr(layer, "weight_global_scale", None)
        if whole is not None:
            whole.fill_(448 * 6 / layer.weight.abs().max())
        scale, zero = calculate_qparams(*ranges, args, *(() if whole is None else (whole,)))
        layer.weight_scale.copy_(scale.reshape(layer.weight_scale.shape))
        if hasattr(layer, "weight_zero_point"):
            layer.weight_zero_point.copy_(zero.reshape(layer.weight_zero_point.shape))
        compress_module(layer)
        plain = copy.deepcopy(layer)
        decompress_module(plain)
        return model, plain.weight.float()

    return make


def extremes(weight: Tensor, args: Any) -> tuple[Tensor, Tensor]:
    """Returns the smallest and the largest element of each group."""
    rows, columns = weight.shape
    if args.strategy == "block":
        height, width = args.block_structure
        tall, wide = -(-rows // height) * height, -(-columns // width) * width
        blocks = pad(weight, (0, wide - columns, 0, tall - rows)).reshape(tall // height, height, wide // width, width)
        return blocks.amin((1, 3)), blocks.amax((1, 3))
    sizes = {"tensor": (1, 1, -1), "channel": (rows, 1, -1)}.get(args.strategy, (rows, -1, args.group_size or 1))
    parts = weight.reshape(sizes)
    return parts.amin(-1), parts.amax(-1)


def hqq(bits: int) -> Callable[[int, int, int], Made]:
    """Returns what makes a layer of HQQ."""

    def make(rows: int, columns: int, group: int) -> Made:
        from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

        config = BaseQuantizeConfig(nbits=bits, group_size=group, axis=random.randrange(2))
        layer = nn.Linear(columns, rows, bias=False)
        layer.weight.data = weight_of(rows, columns)
        made = HQQLinear(layer, config, compute_dtype=torch.float32, device="cpu")
        return nn.Sequential(made).eval(), made.dequantize()

    return make


def quanto(kind: str) -> Callable[[int, int, int], Made]:
    """Returns what makes a layer of quanto."""

    def make(rows: int, columns: int, group: int) -> Made:
        from optimum import quanto as library

        model = nn.Sequential(nn.Linear(columns, rows)).eval()
        model[0].weight.data = weight_of(rows, columns)
        library.quantize(model, weights=getattr(library, kind))
        library.freeze(model)
        return model, model[0].weight.dequantize()

    return make


def bitsandbytes(kind: str, nested: bool) -> Callable[[int, int, int], Made]:
    """Returns what makes a 4-bit layer of bitsandbytes."""

    def make(rows: int, columns: int, group: int) -> Made:
        from bitsandbytes import functional
        from bitsandbytes.nn import Linear4bit

        layer = Linear4bit(columns, rows, compute_dtype=torch.float32, quant_type=kind, compress_statistics=nested)
        layer.load_state_dict({"weight": weight_of(rows, columns), "bias": torch.randn(rows)})
        layer = layer.to("cpu")
        state = layer.quant_state or layer.weight.quant_state
        return nn.Sequential(layer).eval(), functional.dequantize_4bit(layer.weight.data, state)

    return make


def gguf(kind: int, *halves: int) -> Callable[[int, int, int], Made]:
    """Returns what makes a layer of GGUF with random blocks; ``halves`` are where they have float16 numbers."""

    def make(rows: int, columns: int, group: int) -> Made:
        from transformers.integrations.gguf.dequant import GGML_BLOCK, dequantize
        from transformers.integrations.gguf.utils import GgufLinear

        columns, size = 256 * (columns // 256 + 1), GGML_BLOCK[kind][1]
        layer = GgufLinear(columns, rows, kind)
        packed = torch.randint(0, 256, (rows, layer.weight.shape[1] // size, size), dtype=torch.uint8)
        for start in halves:
            packed[..., start : start + 2] = (torch.rand(*packed.shape[:2], 1) * 1e-4).half().view(torch.uint8)
        layer.weight.copy_(packed.flatten(1))
        return nn.Sequential(layer).eval(), dequantize(layer.weight, kind).reshape(rows, columns)

    return make


def fp8(is_e8m0: bool) -> Callable[[int, int, int], Made]:
    """Returns what makes an FP8 layer of transformers with all codes, and NaN in one row."""

    def make(rows: int, columns: int, group: int) -> Made:
        from transformers.integrations.finegrained_fp8 import FP8Linear

        layer = FP8Linear(columns, rows, (group, group), scale_fmt="ue8m0" if is_e8m0 else "float")
        codes = torch.randint(0, 256, (rows, columns), dtype=torch.uint8)
        codes[codes & 127 == 127] = 0
        codes[random.randrange(rows), random.randrange(columns)] = 255  # NaN in one row
        layer.weight.copy_(codes.view(torch.float8_e4m3fn))
        scale = torch.rand(layer.weight_scale_inv.shape) * random.choice((1.0, 1e-36))
        layer.weight_scale_inv.copy_(scale.to(layer.weight_scale_inv.dtype))
        full = layer.weight_scale_inv.float().repeat_interleave(group, 0)[:rows].repeat_interleave(group, 1)
        return nn.Sequential(layer).eval(), layer.weight.float() * full[:, :columns]

    return make


def gptq(bits: int, act_order: bool = False) -> Callable[[int, int, int], Made]:
    """Returns what makes a layer from the format of GPTQ, with its groups in order or not."""

    def make(rows: int, columns: int, group: int) -> Made:
        return _read(GptqLinear(columns, rows, group, bits, act_order=act_order), columns)

    return make


def awq(rows: int, columns: int, group: int) -> Made:
    """Returns a layer from the format of AWQ."""
    return _read(AwqLinear(columns, rows, group), columns)


def _read(layer: nn.Module, columns: int) -> Made:
    """Returns a layer without a bias, and its weight, which it multiplies with the unit vectors."""
    scale = random.choice((1.0, 1e-2))
    for name, buffer in layer.named_buffers():
        buffer.mul_(scale if name == "scales" else 1)
    return nn.Sequential(layer).eval(), layer(torch.eye(columns)).t().contiguous()


def torchao(config: str, **options: Any) -> Callable[[int, int, int], Made]:
    """Returns what makes a layer of torchao; a group is that of the call if it is 0 in the options."""

    def make(rows: int, columns: int, group: int) -> Made:
        from torchao import quantization as library

        layer = nn.Linear(columns, rows)
        layer.weight.data = weight_of(rows, columns)
        model, grouped = nn.Sequential(layer).eval(), options.get("granularity") == 0
        given = {**options, "granularity": library.PerGroup(group)} if grouped else options
        library.quantize_(model, getattr(library, config)(**given))
        weight: Any = model[0].weight
        return model, weight.dequantize()

    return make


def model_optimizer(**given: Any) -> Callable[[int, int, int], Made]:
    """Returns what makes a layer that ``compress`` of Model-Optimizer packed."""

    def make(rows: int, columns: int, group: int) -> Made:
        from modelopt.torch import quantization as library

        layer, blocks = nn.Linear(columns, rows, bias=False), given.get("block_sizes")
        layer.weight.data = weight_of(rows, columns)
        quantizer = {**given, "enable": True, **({"block_sizes": {-1: group, **blocks}} if blocks else {})}
        rules = {"*weight_quantizer": quantizer, "*input_quantizer": {"enable": False}}
        config = {"quant_cfg": {**rules, "*output_quantizer": {"enable": False}}, "algorithm": "max"}
        model = library.quantize(nn.Sequential(layer).eval(), config, lambda _: None)
        library.compress(model)
        return model, model(torch.eye(columns)).t().contiguous()

    return make


_GROUPS = {"type": "int", "strategy": "group"}
FORMATS: dict[str, Callable[[int, int, int], Made]] = {
    "fp8 in blocks": fp8(False),
    "fp8 in blocks, e8m0": fp8(True),
    **{f"pack-quantized, {bits} bits": compressed(num_bits=bits, **_GROUPS) for bits in range(2, 9)},
    "pack-quantized, zeros": compressed(num_bits=4, symmetric=False, **_GROUPS),
    "float-quantized, tensor": compressed(num_bits=8, type="float", strategy="tensor"),
    "float-quantized, rows": compressed(num_bits=8, type="float", strategy="channel"),
    "float-quantized, blocks": compressed(num_bits=8, type="float", strategy="block", block_structure=[16, 32]),
    "nvfp4-pack-quantized": compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16),
    "mxfp4-pack-quantized": compressed(
        num_bits=4, type="float", strategy="group", group_size=32, scale_dtype="torch.uint8"
    ),
    **{f"hqq, {bits} bits": hqq(bits) for bits in (8, 4, 3, 2, 1)},
    **{f"quanto, {kind}": quanto(kind) for kind in ("qint8", "qint4", "qint2", "qfloat8")},
    **{f"gptq, {bits} bits": gptq(bits) for bits in (4, 8)},
    "gptq, groups in another order": gptq(4, act_order=True),
    "awq": awq,
    "torchao, 4 bits": torchao("IntxWeightOnlyConfig", weight_dtype=torch.int4, granularity=0),
    "torchao, 8 bits": torchao("Int8WeightOnlyConfig"),
    "torchao, float8": torchao("Float8WeightOnlyConfig"),
    "Model-Optimizer, nvfp4": model_optimizer(
        num_bits=(2, 1), block_sizes={-1: 16, "type": "dynamic", "scale_bits": (4, 3)}
    ),
    "Model-Optimizer, int4": model_optimizer(num_bits=4, block_sizes={"type": "static"}),
    "Model-Optimizer, int8": model_optimizer(num_bits=8, axis=0),
    "Model-Optimizer, fp8": model_optimizer(num_bits=(4, 3), axis=None),
    "bitsandbytes nf4": bitsandbytes("nf4", False),
    "bitsandbytes fp4, nested": bitsandbytes("fp4", True),
    **{
        f"gguf {name}": gguf(kind, *halves)
        for name, kind, *halves in (
            ("Q4_0", 2, 0), ("Q4_1", 3, 0, 2), ("Q8_0", 8, 0), ("Q2_K", 10, 80, 82), ("Q3_K", 11, 108),
            ("Q4_K", 12, 0, 2), ("Q5_K", 13, 0, 2), ("Q6_K", 14, 208), ("IQ4_NL", 20, 0),
        )
    },
}  # fmt: skip


def difference(found: Tensor, expected: Tensor) -> float:
    """Returns the largest difference relative to the largest result; infinite if NaN is not in the same places."""
    finite = expected.isfinite()
    if not torch.equal(finite, found.isfinite()):
        return float("inf")
    return float((found - expected)[finite].abs().max() / expected[finite].abs().max()) if finite.any() else 0.0


@torch.no_grad()
def main() -> None:
    """Prints a line for each format and opset."""
    warnings.simplefilter("ignore")
    for name, make in FORMATS.items():
        worst, kinds, size, errors = dict.fromkeys(OPSETS, 0.0), dict[int, str](), dict[int, float](), set[str]()
        for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
            random.seed(seed)
            torch.manual_seed(seed)
            group = random.choice((16, 32, 64, 128, 256))
            columns = group * random.randrange(1, 4) + (24 if "fp8" in name or "bitsandbytes" in name else 0)
            rows = random.choice((32, 48, 96)) if "hqq" not in name else 256
            try:
                layer, weight = make(rows, columns, group)
            except ImportError as error:
                errors.add(f"not installed: {error.name}")
                break
            except Exception as error:  # the library has no such shape
                errors.add(f"{type(error).__name__}: {error}"[:60])
                continue
            x, bias = torch.randn(3, weight.shape[1]), getattr(layer[0], "bias", None)
            for opset in OPSETS:
                try:
                    program = fx_onnx.export(layer, (x,), opset_version=opset, verbose=False, progress=False)
                except fx_onnx.OnnxExporterError as error:
                    errors.add(f"{opset}: {error}"[:100])
                    continue
                worst[opset] = max(worst[opset], difference(program(x)[0], linear(x, weight.float(), bias)))
                kinds[opset] = "+".join(dict.fromkeys(node.op_type for node in program.model.graph))
                stored = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
                size[opset] = stored / weight.numel()
        for opset in kinds:
            print(f"{name:26} {opset}  {worst[opset]:.0e}  {size[opset]:.3f}  {kinds[opset]}", flush=True)
        for text in sorted(errors):
            print(f"{name:26} {text}", flush=True)


if __name__ == "__main__":
    main()
