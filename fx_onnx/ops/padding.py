"""ATen padding → ONNX Pad. ATen pads the last axis first: (left, right, top, bottom, ...)."""

from collections.abc import Callable, Sequence

import torch
from onnx_ir import Value
from torch import Tensor

from fx_onnx.core import symbolic_sizes
from fx_onnx.core.symbolic_sizes import Size
from fx_onnx.core.translation_table import translates
from fx_onnx.translation.emitter import Emitter, Scalar

aten = torch.ops.aten

_ONNX_MODE = {"constant": None, "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pad(op: Emitter, self: Value, pad: Sequence[Size], mode: str | None = None, value: Scalar = 0) -> Value:
    """One Pad node; nothing where all pads are 0."""
    pad = [symbolic_sizes.static(size) for size in pad]
    if all(isinstance(size, int) and size == 0 for size in pad):
        return self
    untouched: list[Size] = [0] * (op.rank(self) - len(pad) // 2)
    begins, ends = untouched + pad[-2::-2], untouched + pad[-1::-2]
    fill = None if mode is not None or value == 0 else op.cast(value, self.dtype or op.out_dtype)
    result: Value = op.Pad(self, op.shape([*begins, *ends]), fill, mode=mode)
    return result


@translates(aten.constant_pad_nd.default)
def aten_constant_pad_nd(op: Emitter, self: Value, pad: Sequence[Size], value: Scalar = 0) -> Value:
    """self between constant borders; a negative pad crops."""
    return _pad(op, self, pad, None, value)


def _only_adds(pad: Sequence[Size]) -> bool:
    """Whether no pad is known to crop."""
    return all(not isinstance(size, int) or size >= 0 for size in map(symbolic_sizes.static, pad))


def _has_elements(self: Tensor) -> bool:
    """Whether self is not known to be empty: what an empty tensor repeats along its other axes, ONNX leaves open."""
    return all(not isinstance(size, int) or size > 0 for size in self.shape)


def _has_mode(*modes: str) -> Callable[..., bool]:
    def is_supported(self: Tensor, pad: Sequence[Size], mode: str = "constant", value: float | None = None) -> bool:
        return mode in modes and (mode == "constant" or (_only_adds(pad) and _has_elements(self)))

    return is_supported


@translates(aten.pad.default, since=19, supports=_has_mode("constant", "reflect", "replicate", "circular"))
@translates(aten.pad.default, supports=_has_mode("constant", "reflect", "replicate"))
def aten_pad(
    op: Emitter, self: Value, pad: Sequence[Size], mode: str = "constant", value: float | None = None
) -> Value:
    """self between borders: constant ones, its reflection, its edge or its other end (wrap, since opset 19)."""
    return _pad(op, self, pad, _ONNX_MODE[mode], 0 if value is None else value)


def _is_repeatable(self: Tensor, padding: Sequence[Size]) -> bool:
    return _only_adds(padding) and _has_elements(self)


@translates(
    aten.reflection_pad1d.default,
    aten.reflection_pad2d.default,
    aten.reflection_pad3d.default,
    supports=_is_repeatable,
)
def aten_reflection_pad(op: Emitter, self: Value, padding: Sequence[Size]) -> Value:
    """self between its reflections, the edge not repeated."""
    return _pad(op, self, padding, "reflect")


@translates(
    aten.replication_pad1d.default,
    aten.replication_pad2d.default,
    aten.replication_pad3d.default,
    supports=_is_repeatable,
)
def aten_replication_pad(op: Emitter, self: Value, padding: Sequence[Size]) -> Value:
    """self between repetitions of its edge."""
    return _pad(op, self, padding, "edge")
