"""Small networks quantized by PT2E and torchao."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.export import Dim
from torchao import quantization as ao
from torchao.quantization import pt2e
from torchao.quantization.pt2e import qat_utils, quantize_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack  # the copy from ExecuTorch, which is rarely installed


class ResidualBlock(nn.Module):
    """Convolutions with batch norms, a residual connection, a pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv, self.fc = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.conv(x) + x)
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """A self-attention layer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Mobile(nn.Module):
    """Parts of networks for phones: a depthwise convolution, a gate, a transposed convolution, a pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.larger, self.fc = nn.ConvTranspose2d(16, 4, 2, stride=2), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.hardtanh(self.stem(x))
        x = torch.cat([x * self.depthwise(x), x.relu()], 1)
        x = nn.functional.hardswish(nn.functional.max_pool2d(self.larger(x), 2))
        return self.fc(x.mean((2, 3)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64, bias=False))


def images(batch: int) -> Tensor:
    return torch.randn(batch, 3, 8, 8)


def tokens(batch: int) -> Tensor:
    return torch.randn(batch, 6, 16)


def rows(batch: int) -> Tensor:
    return torch.randn(batch, 64)


def converted(make: Callable[[], nn.Module], inputs: Callable[[int], Tensor], **kind: bool) -> nn.Module:
    """Returns the network after PT2E with X86InductorQuantizer."""
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(**kind))
    return after_pt2e(make, inputs, quantizer, trains=kind.get("is_qat", False))


def after_xnnpack(make: Callable[[], nn.Module], inputs: Callable[[int], Tensor], **kind: bool) -> nn.Module:
    """Returns the network after PT2E with XNNPACKQuantizer."""
    quantizer = xnnpack.XNNPACKQuantizer()
    quantizer.set_global(xnnpack.get_symmetric_quantization_config(**kind))
    return after_pt2e(make, inputs, quantizer, trains=kind.get("is_qat", False))


def after_pt2e(
    make: Callable[[], nn.Module], inputs: Callable[[int], Tensor], quantizer: Quantizer, trains: bool
) -> nn.Module:
    """Captures, prepares, calibrates and converts the network."""
    torch.manual_seed(0)
    program = torch.export.export(make().train(trains), (inputs(2),), dynamic_shapes=({0: Dim("batch")},))
    captured = program.module(check_guards=False)
    prepare = quantize_pt2e.prepare_qat_pt2e if trains else quantize_pt2e.prepare_pt2e
    # torchao captures 114 patterns of convolutions before batch norms, of which those of 2-D convolutions can match;
    # without dynamo, their graphs are the same in a fifth of the time.
    searches = {
        name: _of_images(getattr(qat_utils, name)) for name in ("_fuse_conv_bn_qat_helper", "_fold_conv_bn_qat_helper")
    }
    export = torch.export.export
    without_dynamo = mock.patch.object(torch.export, "export", lambda *args, strict: export(*args, strict=False))
    with without_dynamo, mock.patch.multiple(qat_utils, **searches):
        prepared = prepare(captured, quantizer)
        for _ in range(3):
            prepared(inputs(2))
        if trains:
            pt2e.move_exported_model_to_eval(prepared)
        return quantize_pt2e.convert_pt2e(prepared)


def _of_images(search: Callable[..., Any]) -> Callable[..., Any]:
    """Returns torchao's search for convolutions before batch norms, without the kinds that no network here has."""
    return lambda module, kind, *rest, **options: (
        search(module, kind, *rest, **options) if kind is nn.functional.conv2d else module
    )


CONFIGS: dict[str, Callable[[], Any]] = {
    "int8_weights": ao.Int8WeightOnlyConfig,
    "int8_weights_in_groups": lambda: ao.Int8WeightOnlyConfig(granularity=ao.PerGroup(32)),
    "int8_by_channel": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=ao.PerAxis(0)),
    "int4_in_groups": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32)),
    "int4_asymmetric": lambda: ao.IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=ao.PerGroup(32), mapping_type=ao.MappingType.ASYMMETRIC
    ),
    "int2_in_groups": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int2, granularity=ao.PerGroup(32)),
    "int8_dynamic": ao.Int8DynamicActivationInt8WeightConfig,
    "int8_dynamic_asymmetric": lambda: ao.Int8DynamicActivationInt8WeightConfig(
        act_mapping_type=ao.MappingType.ASYMMETRIC
    ),
    "int8_dynamic_int4": lambda: ao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=ao.PerGroup(32)
    ),
    "float8_weights": ao.Float8WeightOnlyConfig,
}


def quantized(config: str, make: Callable[[], nn.Module] = mlp) -> nn.Module:
    """Returns the network with the weights that one of CONFIGS quantizes."""
    torch.manual_seed(0)
    module = make().eval()
    ao.quantize_(module, CONFIGS[config]())
    return module
