"""Modules of torch's eager quantisation while a model is captured.

A fake quantiser asks its buffers whether it observes and whether it quantises, which torch.export takes for a question
about data. While a model is captured, the answers are those of its buffers now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.ao.nn.quantized import FloatFunctional
from torch.ao.quantization.fake_quantize import FakeQuantize, disable_observer

from fx_onnx.capture.export_flag import replaced
from fx_onnx.core.errors import CaptureError

__all__ = ["settled_quantizers"]

_CONVERTED = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.")


@contextmanager
def settled_quantizers(model: nn.Module) -> Iterator[None]:
    """Lets the fake quantisers of ``model`` compute with the scales that they have now.

    Raises:
        CaptureError: one still observes, or a module was converted to kernels of this machine.
    """
    found: list[FakeQuantize] = []
    for name, module in model.named_modules():
        if f"{type(module).__module__}.".startswith(_CONVERTED) and not isinstance(module, FloatFunctional):
            raise CaptureError(
                f"The module {name!r} is a {type(module).__module__}.{type(module).__name__}, which computes in "
                "kernels of this machine on quantised tensors, of which torch.export knows nothing: quantise with PT2E "
                "(torchao.quantization.pt2e) or torchao.quantization.quantize_ instead."
            )
        if isinstance(module, FakeQuantize):
            if _is_on(module.observer_enabled):
                raise CaptureError(
                    f"The fake quantiser {name!r} still changes its scale by what it observes: call "
                    f"model.apply({disable_observer.__module__.rpartition('.')[0]}.{disable_observer.__name__}) "
                    "before the export."
                )
            found.append(module)
    with ExitStack() as stack:
        for module in found:
            quantizes = _is_on(module.fake_quant_enabled)
            stack.enter_context(replaced(module, "forward", partial(_quantized, module, quantizes)))
        yield


def _is_on(flag: Tensor) -> bool:
    return bool(flag[0] == 1)


def _quantized(module: FakeQuantize, enabled: bool, X: Tensor) -> Tensor:
    """What the module computes when it does not observe."""
    if not enabled:
        return X
    limits = module.activation_post_process.quant_min, module.activation_post_process.quant_max
    if module.is_per_channel:
        return torch.fake_quantize_per_channel_affine(X, module.scale, module.zero_point, module.ch_axis, *limits)
    return torch.fake_quantize_per_tensor_affine(X, module.scale, module.zero_point, *limits)
