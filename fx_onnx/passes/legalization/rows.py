"""The rows of the table of legalization that the default target runs, from the files of its subjects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType

from fx_onnx.passes.legalization import (
    axes_and_shapes,
    convolutions_and_pools,
    integers,
    normalizations,
    products,
    random_draws,
    ranges_and_slices,
    reductions,
    resizing,
    special_functions,
)
from fx_onnx.passes.legalization.table import TABLE, Legalization

__all__ = ["ROWS", "SUBJECTS", "rows_of"]

SUBJECTS = (
    axes_and_shapes,
    convolutions_and_pools,
    integers,
    normalizations,
    products,
    random_draws,
    ranges_and_slices,
    reductions,
    resizing,
    special_functions,
)
"""The files whose rows fill the table."""


def rows_of(files: Iterable[ModuleType]) -> Sequence[Legalization]:
    """Returns the rows of these files by subject, whichever file was imported first."""
    names = sorted((file.__name__ for file in files), key=lambda name: name.rpartition(".")[2])
    return tuple(row for name in names for row in TABLE if row.__module__ == name)


ROWS = rows_of(SUBJECTS)
"""The rows that the default target runs, and those of older opsets that stand beside them."""
