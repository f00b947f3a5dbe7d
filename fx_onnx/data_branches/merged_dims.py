"""The shapes of values that several paths compute: what is true of them on each path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from fx_onnx.data_branches.equal_values import Number, Numbered
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.names import Names

__all__ = ["MergedDims"]

_Dim = int | str | None


class MergedDims:
    """Dims that have one name if and only if they are equal on each path where the value is computed.

    A path may know more of a size than the others: ``torch._check(n == 2)`` after a condition makes it static there.

    Attributes:
        data_dependent: the names of the dims whose sizes depend on data.
    """

    def __init__(self, paths: Sequence[Numbered]) -> None:
        self._paths = paths
        self._of_data = {dim for path in paths for dim in path.model.meta.get(metadata.DATA_DEPENDENT_DIMS, ())}
        self._names = Names(
            dim for path in paths for value in path.values for dim in _dims(value) or () if isinstance(dim, str)
        )
        self._known: dict[tuple[_Dim, ...], _Dim] = {}
        self.data_dependent: set[str] = set(self._of_data)

    def of(self, number: Number, paths: Sequence[Numbered]) -> ir.Shape | None:
        """Returns the shape of a value in a scope that some paths reach."""
        shapes = [path.of[number].shape for path in paths if number in path.of]
        merged = self.merged(shapes)
        if merged is not None and len(shapes) < len(paths):  # nothing is known of it where another path goes on
            return ir.Shape([None] * len(merged))
        return merged

    def merged(self, shapes: Sequence[ir.Shape | None]) -> ir.Shape | None:
        """Returns the shape of a value that has one of these shapes; None if it may have several ranks."""
        ranks = {None if shape is None else len(shape) for shape in shapes}
        if len(ranks) > 1 or None in ranks:
            return None
        return ir.Shape(
            [
                self._dim(tuple(map(_plain, dims)))
                for dims in zip(*(shape for shape in shapes if shape is not None), strict=True)
            ]
        )

    def of_input(self, number: Number) -> ir.Shape | None:
        """Returns the shape of an input: a size that one path takes alone is static, and equal dims are equal."""
        shapes = [(path, path.of[number].shape) for path in self._paths if number in path.of]
        if any(shape is None for _, shape in shapes):
            return None
        counts = {
            path: [dim for value in path.model.graph.inputs for dim in _dims(value) or ()] for path in self._paths
        }
        dims: list[_Dim] = []
        for axis in range(len(shapes[0][1])):
            found = [(counts[path].count(dim), dim) for path, shape in shapes for dim in [_plain(shape[axis])]]
            static = [dim for _, dim in found if isinstance(dim, int)]
            dims.append(static[0] if static else max(found, key=lambda pair: pair[0])[1])
        return ir.Shape(dims)

    def _dim(self, dims: tuple[_Dim, ...]) -> _Dim:
        if len({*dims}) == 1:
            return dims[0]
        if dims not in self._known:
            name = self._known[dims] = self._names.unique("dim")
            if not self._of_data.isdisjoint(dims):
                self.data_dependent.add(name)
        return self._known[dims]


def _plain(dim: Any) -> _Dim:
    return dim if isinstance(dim, int) else dim.value


def _dims(value: ir.Value) -> list[_Dim] | None:
    return None if value.shape is None else list(map(_plain, value.shape))
