"""Replaces the forwards of the fake quantizers of torch's eager-mode quantization and of PT2E in torchao.

A fake quantizer reads from its buffers whether it observes and whether it quantizes. torch.export takes this for a
data-dependent branch. During the capture, the values that the buffers have now are constants. A model that was prepared
for quantization and not converted is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.nn.quantized import FloatFunctional

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["freeze_fake_quantizers"]

_CONVERTED = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.")
_OBSERVER, _FAKE_QUANTIZER = "observer.UniformQuantizationObserverBase", "fake_quantize.FakeQuantize"
_CONVERTING = {
    "torch.ao.quantization": "torch.ao.quantization.convert",
    "torchao.quantization.pt2e": "torchao.quantization.pt2e.quantize_pt2e.convert_pt2e",
}
"""The packages that have both classes, and the function that ends a quantization."""


@contextmanager
def freeze_fake_quantizers(model: nn.Module) -> Iterator[None]:
    """Makes the fake quantizers of ``model`` compute with their current scales within the context.

    Raises:
        CaptureError: An observer is active, or a module was converted to processor-specific kernels.
    """
    packages = {module: _package_of(module, _FAKE_QUANTIZER) for module in model.modules()}
    quantizers = {module: package for module, package in packages.items() if package}
    inner = {child for module in quantizers for child in module.modules()}
    for name, module in model.named_modules():
        if f"{type(module).__module__}.".startswith(_CONVERTED) and not isinstance(module, FloatFunctional):
            raise CaptureError(
                f"The module {name!r} is a {type(module).__module__}.{type(module).__name__}, whose processor-specific "
                "kernels for quantized tensors torch.export does not support: quantize with PT2E "
                "(torchao.quantization.pt2e) or torchao.quantization.quantize_ instead.",
                id=MessageId.QUANTIZED_MODULE,
            )
        is_updated = module in quantizers and _package_of(module.activation_post_process, _OBSERVER)
        if is_updated and _is_on(module.observer_enabled):
            raise CaptureError(
                f"The fake quantizer {name!r} still updates its scale from the values that it observes: call "
                f"model.apply({quantizers[module]}.disable_observer) before the export.",
                id=MessageId.QUANTIZED_MODULE,
            )
        if module not in inner and (package := _package_of(module, _OBSERVER)):
            raise CaptureError(
                f"The model is prepared for quantization, but not converted: {name!r} is a {type(module).__name__}, "
                f"which observes the values; call {_CONVERTING[package]} before the export.",
                id=MessageId.QUANTIZED_MODULE,
            )
    with ExitStack() as stack:
        for module in quantizers:
            forward = partial(_fake_quantize_forward, module, _is_on(module.fake_quant_enabled))
            stack.enter_context(replace_attribute(module, "forward", forward))
        yield


def _package_of(module: nn.Module, name: str) -> str:
    """Returns the package of torch or torchao whose class of this name a module has; empty if it has none."""
    classes = {f"{base.__module__}.{base.__qualname__}" for base in type(module).__mro__}
    return next((package for package in _CONVERTING if f"{package}.{name}" in classes), "")


def _is_on(flag: Any) -> bool:
    return bool(flag[0] == 1)


def _fake_quantize_forward(module: Any, enabled: bool, X: Tensor) -> Tensor:
    """Replaces ``FakeQuantize.forward`` of a module that does not observe."""
    if not enabled:
        return X
    limits = module.activation_post_process.quant_min, module.activation_post_process.quant_max
    if module.is_per_channel:
        return torch.fake_quantize_per_channel_affine(X, module.scale, module.zero_point, module.ch_axis, *limits)
    return torch.fake_quantize_per_tensor_affine(X, module.scale, module.zero_point, *limits)
