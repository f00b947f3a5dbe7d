"""Weights of 4-bit floats for the runtimes that take FLOAT4E2M1, from opset 23 on."""

from __future__ import annotations

from typing import Any

from fx_onnx.extension_points.rooms import find
from fx_onnx.extension_points.translation_table import Translation

__all__ = ["FLOAT4_WEIGHTS"]


def _is_float4(kind: str, zero: Any, offset: Any) -> bool:
    return bool(find("translations", "is float4")(kind, zero, offset))


def _float4_weight(
    op: Any, data: Any, scale: Any, zero: Any, offset: Any, table: Any, blocks: Any, kind: str, bits: int, dtype: Any
) -> Any:  # fmt: skip
    """Emits DequantizeLinear of FLOAT4E2M1."""
    return find("translations", "float4 weight")(op, data, scale, zero, offset, table, blocks, kind, bits, dtype)


FLOAT4_WEIGHTS = Translation("fx_onnx::dequantize", _float4_weight, since=23, supports=_is_float4)
"""The translation for such a target."""
