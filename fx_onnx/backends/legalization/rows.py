"""All rows of the table of legalization: those of the default target, and those of this room."""

from __future__ import annotations

from collections.abc import Collection

from fx_onnx.backends.legalization import (
    attention_products,
    axes_and_shapes,
    convolutions_and_pools,
    integers,
    loops,
    normalizations,
    npu_weights,
    products,
    ranges_and_slices,
    reductions,
    resizing,
    sampling,
    scatters,
    static_shapes,
)
from fx_onnx.passes.legalization import legalize, rows
from fx_onnx.passes.rewriter import Pass

__all__ = ["ROWS", "SUBJECTS", "legalizations"]

SUBJECTS = (
    attention_products,
    axes_and_shapes,
    convolutions_and_pools,
    integers,
    loops,
    normalizations,
    npu_weights,
    products,
    ranges_and_slices,
    reductions,
    resizing,
    sampling,
    scatters,
    static_shapes,
)
"""The files of this room whose rows fill the table."""

ROWS = rows.rows_of((*rows.SUBJECTS, *SUBJECTS))
"""The rows by subject, and those of one file in its order."""


def legalizations(target: str, *tables: str, without: Collection[str] = ()) -> tuple[Pass, ...]:
    """Returns all passes that replace what a runtime cannot run; the parameters are those of ``legalize.py``."""
    return legalize.legalizations(target, *tables, without=without, rows=ROWS)
