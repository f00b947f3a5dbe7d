"""All rows of the table of legalization, from the files of its subjects."""

from __future__ import annotations

from fx_onnx.passes.legalization import (
    activations,
    axes_and_shapes,
    comparisons,
    convolutions_and_pools,
    element_positions,
    integers,
    loops,
    losses,
    normalizations,
    pads,
    products,
    quantizing,
    random_draws,
    ranges_and_slices,
    recurrent_layers,
    reductions,
    resizing,
    sampling,
    scatter_reduction,
    special_functions,
    transforms,
)
from fx_onnx.passes.legalization.table import TABLE

__all__ = ["ROWS", "SUBJECTS"]

SUBJECTS = (
    activations, axes_and_shapes, comparisons, convolutions_and_pools, element_positions, integers, loops, losses,
    normalizations, pads, products, quantizing, random_draws, ranges_and_slices, recurrent_layers, reductions, resizing,
    sampling, scatter_reduction, special_functions, transforms,
)  # fmt: skip
"""The files whose rows fill the table."""

ROWS = tuple(sorted(TABLE, key=lambda row: row.__module__))
"""The rows by file, those of one file in its order, whichever file was imported first."""
