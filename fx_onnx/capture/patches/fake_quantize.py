"""Patches the fake quantizers of torch's eager-mode quantization.

A fake quantizer reads from its buffers whether it observes and whether it quantizes. torch.export takes this for a
data-dependent branch. During the capture, the values that the buffers have now are constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.ao.nn.quantized import FloatFunctional
from torch.ao.quantization.fake_quantize import FakeQuantize, disable_observer

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["freeze_fake_quantizers"]

_CONVERTED = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.")


@contextmanager
def freeze_fake_quantizers(model: nn.Module) -> Iterator[None]:
    """Makes the fake quantizers of ``model`` compute with their current scales within the context.

    Raises:
        CaptureError: A fake quantizer still observes, or a module was converted to processor-specific kernels.
    """
    for name, module in model.named_modules():
        if f"{type(module).__module__}.".startswith(_CONVERTED) and not isinstance(module, FloatFunctional):
            raise CaptureError(
                f"The module {name!r} is a {type(module).__module__}.{type(module).__name__}, whose processor-specific "
                "kernels for quantized tensors torch.export does not support: quantize with PT2E "
                "(torchao.quantization.pt2e) or torchao.quantization.quantize_ instead.",
                id=MessageId.QUANTIZED_MODULE,
            )
        if isinstance(module, FakeQuantize) and _is_on(module.observer_enabled):
            raise CaptureError(
                f"The fake quantizer {name!r} still updates its scale from the values that it observes: call "
                f"model.apply({disable_observer.__module__.rpartition('.')[0]}.{disable_observer.__name__}) "
                "before the export.",
                id=MessageId.QUANTIZED_MODULE,
            )
    quantizers = [module for module in model.modules() if isinstance(module, FakeQuantize)]
    with ExitStack() as stack:
        for module in quantizers:
            forward = partial(_fake_quantize_forward, module, _is_on(module.fake_quant_enabled))
            stack.enter_context(replace_attribute(module, "forward", forward))
        yield


def _is_on(flag: Tensor) -> bool:
    return bool(flag[0] == 1)


def _fake_quantize_forward(module: FakeQuantize, enabled: bool, X: Tensor) -> Tensor:
    """Replaces ``FakeQuantize.forward`` of a module that does not observe."""
    if not enabled:
        return X
    limits = module.activation_post_process.quant_min, module.activation_post_process.quant_max
    if module.is_per_channel:
        return torch.fake_quantize_per_channel_affine(X, module.scale, module.zero_point, module.ch_axis, *limits)
    return torch.fake_quantize_per_tensor_affine(X, module.scale, module.zero_point, *limits)
