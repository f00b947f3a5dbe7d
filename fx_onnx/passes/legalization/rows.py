"""All rows of the table of legalization, from the files of its subjects."""

from __future__ import annotations

from fx_onnx.passes.legalization import (
    axes_and_shapes,
    convolutions_and_pools,
    integers,
    loops,
    normalizations,
    products,
    random_draws,
    ranges_and_slices,
    reductions,
    resizing,
    sampling,
    scatters,
    special_functions,
)
from fx_onnx.passes.legalization.table import TABLE

__all__ = ["ROWS", "SUBJECTS"]

SUBJECTS = (
    axes_and_shapes, convolutions_and_pools, integers, loops, normalizations, products, random_draws, ranges_and_slices,
    reductions, resizing, sampling, scatters, special_functions,
)  # fmt: skip
"""The files whose rows fill the table."""

ROWS = tuple(sorted(TABLE, key=lambda row: row.__module__))
"""The rows by file, those of one file in its order, whichever file was imported first."""
