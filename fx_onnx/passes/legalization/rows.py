"""The rows of the table of legalization that the default target runs, from the files of its subjects."""

from __future__ import annotations

from collections.abc import Sequence

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
    scatters,
    special_functions,
)
from fx_onnx.passes.legalization.table import TABLE, Legalization

__all__ = ["ROWS", "SUBJECTS", "all_rows"]

SUBJECTS = (
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
    scatters,
    special_functions,
)
"""The files whose rows fill the table."""


def all_rows() -> Sequence[Legalization]:
    """Returns the rows of the files that are imported so far, by subject, whichever file was imported first."""
    return tuple(sorted(TABLE, key=lambda row: row.__module__.rpartition(".")[2]))


ROWS = all_rows()
"""The rows that the default target runs, and those of older opsets that stand beside them."""
