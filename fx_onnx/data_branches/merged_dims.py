"""The shapes of values that several paths compute: what is true of them on each path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import onnx_ir as ir

from fx_onnx.data_branches.equal_values import Number, Numbered
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.names import Names

__all__ = ["MergedDims"]

_Dim = int | str | None


class MergedDims:
    """Dims that are known of a value on each path where it is computed.

    A path may know more of a size than the others: ``torch._check(n == 2)`` after a condition makes it static there.

    Attributes:
        data_dependent: the names of the dims whose sizes depend on data.
    """

    def __init__(self, paths: Sequence[Numbered]) -> None:
        self._paths = paths
        self.data_dependent = {dim for path in paths for dim in path.model.meta.get(metadata.DATA_DEPENDENT_DIMS, ())}
        self._names = Names(dim for path in paths for value in path.values for dim in _dims(value) if type(dim) is str)

    def of(self, number: Number, paths: Sequence[Numbered]) -> ir.Shape | None:
        """Returns the shape of a value in a scope that some paths reach."""
        shapes = [path.of[number].shape for path in paths if number in path.of]
        merged = self.merged(shapes)
        if merged is not None and len(shapes) < len(paths):  # nothing is known of it where another path goes on
            return ir.Shape([None] * len(merged))
        return merged

    def merged(self, shapes: Sequence[ir.Shape | None]) -> ir.Shape | None:
        """Returns the shape of a value that has one of these shapes; None if it may have several ranks."""
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes) or len({len(shape) for shape in known}) > 1:
            return None
        return ir.Shape([self._dim({*map(_plain, dims)}) for dims in zip(*known, strict=True)])

    def of_input(self, number: Number) -> ir.Shape | None:
        """Returns the shape of an input: static if one path takes that size alone, and equal to what one path needs."""
        values = [path.of[number] for path in self._paths if number in path.of]
        uses = Counter(dim for path in self._paths for value in path.model.graph.inputs for dim in _dims(value))
        dims = zip(*map(_dims, values), strict=True)
        return ir.Shape([max(candidates, key=lambda dim: (type(dim) is int, uses[dim])) for candidates in dims])

    def _dim(self, dims: Collection[_Dim]) -> _Dim:
        """Returns a dim that is equal on all paths, or a new name."""
        if len(dims) == 1:
            return next(iter(dims))
        name = self._names.unique("dim")
        self.data_dependent.add(name)
        return name


def _plain(dim: Any) -> _Dim:
    return dim if isinstance(dim, int) else dim.value


def _dims(value: ir.Value) -> list[_Dim]:
    return [] if value.shape is None else list(map(_plain, value.shape))
