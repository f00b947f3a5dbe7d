"""The sizes of ONNX values in torch's terms: ints and SymInts.

An ONNX shape names its dynamic dims; it cannot tell that ``2*s17`` is twice ``s17``. Translations need torch's symbolic
sizes, so each value keeps them in its ``meta``.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_ir import Value

from fx_onnx.sizes.symbolic_sizes import Size, static

_KEY = "sizes"


def known_sizes(value: Value) -> tuple[Size, ...] | None:
    """Returns the sizes of a value; None if no translation or helper recorded them."""
    sizes: tuple[Size, ...] | None = value.meta.get(_KEY)
    return sizes


def record_sizes(value: Value, sizes: Sequence[Size]) -> Value:
    """Records the sizes of a value and returns the value; a symbolic size that is constant becomes an int."""
    value.meta[_KEY] = tuple(map(static, sizes))
    return value
