"""Finite differences along axes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes

Number = bool | int | float


@decomposes(
    aten.gradient.scalarint, aten.gradient.scalararray, aten.gradient.array, aten.gradient.scalarrayint,
    aten.gradient.scalarrayarray, aten.gradient.tensorarrayint, aten.gradient.tensorarray,
)  # fmt: skip
def gradient(
    self: Tensor,
    *,
    spacing: Number | Sequence[Number | Tensor] | None = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> list[Tensor]:
    """Returns the derivative along each axis, by central differences inside and one-sided ones at the ends.

    torch's own composition reads the sizes as plain numbers.

    Args:
        self: (any shape).
        spacing: The distance of neighbours for all axes, or the distance or the positions for each axis.
        dim: The axes; all by default.
        edge_order: 1 for the difference of two neighbours at the ends, 2 for the parabola through three.
    """
    axes = [*range(self.dim())] if dim is None else [dim] if isinstance(dim, int) else dim
    spaces = spacing if isinstance(spacing, (list, tuple)) else [1 if spacing is None else spacing] * len(axes)
    pairs = zip(axes, spaces, strict=True)
    return [_derivative(self.movedim(axis, -1), space, edge_order).movedim(-1, axis) for axis, space in pairs]


def _derivative(x: Tensor, space: Number | Tensor, edge_order: int) -> Tensor:
    """Returns the derivative along the last axis, for the distance of neighbours or their positions."""
    count = x.size(-1) - 2
    if isinstance(space, Tensor):
        steps = space.diff()
        inner = _parabola(x, steps, count)
    else:
        steps = torch.full((2,), space, dtype=x.dtype if x.is_floating_point() else None)
        inner = (x.narrow(-1, 2, count) - x.narrow(-1, 0, count)) / (2 * space)
    if edge_order == 1:
        first, last = (x[..., 1:2] - x[..., :1]) / steps[:1], (x[..., -1:] - x[..., -2:-1]) / steps[-1:]
    else:
        first, last = _parabola(x[..., :3], steps[:2], 1, at=0), _parabola(x[..., -3:], steps[-2:], 1, at=2)
    return torch.cat([first, inner, last], -1)


def _parabola(x: Tensor, steps: Tensor, count: int, at: int = 1) -> Tensor:
    """Returns the derivatives of the parabolas through three neighbours each, at one of the three.

    Args:
        x: (..., point).
        steps: The distances of neighbours (point - 1).
        count: The number of parabolas, as many as there are neighbours on both sides.
        at: The place of the derivative among the three: 0, 1 or 2.
    """
    low, middle, high = (x.narrow(-1, start, count) for start in range(3))
    left, right = (steps.narrow(-1, start, count) for start in range(2))
    before, after = (middle - low) / left, (high - middle) / right
    if at == 1:
        return (before * right + after * left) / (left + right)
    curvature = (after - before) / (left + right)
    return before - curvature * left if at == 0 else after + curvature * right


@decomposes(aten.trapezoid.dx)
def trapezoid(y: Tensor, *, dx: Number = 1, dim: int = -1) -> Tensor:
    """Returns the integral of the line through points at the distance ``dx``; 0 for no point and for one."""
    heights: Tensor = (aten.slice.Tensor(y, dim, 1) + aten.slice.Tensor(y, dim, 0, -1)) * 0.5
    return heights.sum(dim) * dx
