"""Padding. ATen lists the pads of the last axis first: (left, right, top, bottom, ...)."""

from collections.abc import Callable, Sequence

from onnx_ir import Value
from torch import Tensor

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Scalar

_ONNX_MODE = {"constant": None, "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pad(op: Emitter, self: Value, pad: Sequence[Size], mode: str | None = None, value: Scalar = 0) -> Value:
    """Emits one Pad, or nothing if all pads are 0."""
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
    """Emits Pad with a constant; a negative pad crops."""
    return _pad(op, self, pad, None, value)


def _only_adds(pad: Sequence[Size]) -> bool:
    """Returns whether no pad can be negative; ONNX does not define what such a pad repeats."""
    return all(bool(symbolic_sizes.expression(size).is_nonnegative) for size in pad)


def _has_elements(self: Tensor) -> bool:
    """Returns whether self is not known to be empty.

    ONNX does not define which elements the border of an empty tensor repeats.
    """
    return all(not isinstance(size, int) or size > 0 for size in self.shape)


def _has_mode(*modes: str) -> Callable[..., bool]:
    """Returns a predicate that accepts calls with one of ``modes``.

    For a mode other than "constant", the pads must not crop, and the tensor must have elements to repeat.
    """

    def is_supported(self: Tensor, pad: Sequence[Size], mode: str = "constant") -> bool:
        return mode in modes and (mode == "constant" or (_only_adds(pad) and _has_elements(self)))

    return is_supported


@translates(aten.pad.default, since=19, supports=_has_mode("constant", "reflect", "replicate", "circular"))
@translates(aten.pad.default, supports=_has_mode("constant", "reflect", "replicate"))
def aten_pad(
    op: Emitter, self: Value, pad: Sequence[Size], mode: str = "constant", value: float | None = None
) -> Value:
    """Emits Pad with a constant, a reflection, the edge, or the opposite end ("wrap", from opset 19)."""
    return _pad(op, self, pad, _ONNX_MODE[mode], 0 if value is None else value)


def _is_repeatable(self: Tensor, padding: Sequence[Size]) -> bool:
    """Returns whether the pads do not crop, and the tensor has elements to repeat."""
    return _only_adds(padding) and _has_elements(self)


@translates(
    aten.reflection_pad1d.default,
    aten.reflection_pad2d.default,
    aten.reflection_pad3d.default,
    supports=_is_repeatable,
)
def aten_reflection_pad(op: Emitter, self: Value, padding: Sequence[Size]) -> Value:
    """Emits Pad with mode "reflect", which does not repeat the edge."""
    return _pad(op, self, padding, "reflect")


@translates(
    aten.replication_pad1d.default,
    aten.replication_pad2d.default,
    aten.replication_pad3d.default,
    supports=_is_repeatable,
)
def aten_replication_pad(op: Emitter, self: Value, padding: Sequence[Size]) -> Value:
    """Emits Pad with mode "edge"."""
    return _pad(op, self, padding, "edge")
