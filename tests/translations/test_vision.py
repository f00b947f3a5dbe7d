"""Operators on images."""

import torch

from tests.harness import Case, cases, check, f32

aten = torch.ops.aten


@cases(
    [
        Case(aten.pixel_shuffle.default, f32(2, 8, 3, 4, fixed=True), 2, emits=["DepthToSpace"]),
        Case(aten.pixel_shuffle.default, f32(8, 3, 4), 2, emits=["Reshape", "Transpose", "Reshape"], dynamic=False),
        Case(aten.pixel_unshuffle.default, f32(2, 3, 4, 6, fixed=True), 2, emits=["SpaceToDepth"]),
        Case(
            aten.pixel_unshuffle.default, f32(3, 4, 6, fixed=True), 2, emits=["Reshape", "Transpose", "Reshape"]
        ),
        Case(aten.channel_shuffle.default, f32(2, 6, 4, 5, fixed=True), 3, emits=["Reshape", "Transpose", "Reshape"]),
        Case(aten.im2col.default, f32(2, 3, 7, 8), [2, 3], [1, 2], [1, 0], [2, 1]),
        Case(aten.im2col.default, f32(3, 7, 8), [2, 3], [1, 1], [0, 0], [1, 1]),
        Case(
            aten.col2im.default, f32(2, 12, 20), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1], emits=["Col2Im"],
            dynamic=False,
        ),
        Case(aten.col2im.default, f32(12, 42), [5, 6], [2, 2], [1, 1], [1, 1], [1, 1], dynamic=False),
    ]
)  # fmt: skip
def test_rearrangements(case: Case) -> None:
    check(case)


@cases(
    Case(aten.grid_sampler.default, f32(2, 3, 5, 6), f32(2, 4, 3, 2, fixed=True), mode, padding, corners,
         emits=["GridSample"])
    for mode in range(3)
    for padding in range(3)
    for corners in (False, True)
)  # fmt: skip
def test_grid_sampler(case: Case) -> None:
    check(case)


@cases(
    [
        *(
            Case(aten.grid_sampler_3d.default, f32(2, 3, 4, 5, 6), f32(2, 4, 3, 2, 3, fixed=True), mode, padding, True)
            for mode in range(2)
            for padding in range(3)
        ),
        Case(aten.affine_grid_generator.default, f32(2, 2, 3, fixed=True), [2, 3, 4, 5], False),
        Case(aten.affine_grid_generator.default, f32(2, 3, 4, fixed=True), [2, 3, 4, 5, 6], True),
        Case(aten.affine_grid_generator.default, f32(2, 2, 3, fixed=True), [2, 3, 1, 5], True),
    ]
)
def test_grids(case: Case) -> None:
    check(case)
