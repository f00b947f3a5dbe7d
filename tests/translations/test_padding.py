"""Padding."""

import torch

from tests.harness import Case, b8, cases, check, f16, f32, f64, i32, i64, u8

aten = torch.ops.aten


@cases(
    [
        Case(aten.constant_pad_nd.default, f32(2, 3), [1, 2], emits=["Pad"]),
        Case(aten.constant_pad_nd.default, f32(2, 3, 4), [1, 2, 0, 3, 1, 1], -1.5),
        Case(aten.constant_pad_nd.default, f32(4, 5), [-1, 2, 1, -2], float("inf"), emits=["Pad"]),
        Case(aten.constant_pad_nd.default, f32(2, 3), [0, 0], emits=["Identity"]),
        Case(aten.constant_pad_nd.default, f64(2, 3), [1, 1], 2),
        Case(aten.constant_pad_nd.default, i64(2, 3), [1, 1], 7),
        Case(aten.constant_pad_nd.default, i32(2, 3), [1, 1], 7),
        Case(aten.constant_pad_nd.default, u8(2, 3), [1, 1], 7),
        Case(aten.constant_pad_nd.default, b8(2, 3), [1, 1], True),
        Case(aten.constant_pad_nd.default, f16(2, 3), [1, 1], 0.5),
        Case(aten.constant_pad_nd.default, f32(0, 3), [1, 1]),
        Case(aten.pad.default, f32(2, 3, 4), [1, 2], emits=["Pad"]),
        Case(aten.pad.default, f32(2, 3, 4), [1, 2], "constant", 3.0, emits=["Pad"]),
    ]
)
def test_constant(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.pad.default, f32(2, 3, 4), [1, 2], "reflect", emits=["Pad"]),
        Case(aten.pad.default, f32(2, 3, 4, 4), [1, 2, 0, 1], "replicate", emits=["Pad"]),
        Case(aten.pad.default, f32(2, 3, 4, 4), [1, 2, 3, 1], "circular", emits=["Pad"]),
        Case(aten.pad.default, f32(2, 3, 6), [-1, 2], "circular"),
        Case(aten.pad.default, f32(2, 3, 6), [-1, 2], "replicate"),
        Case(aten.pad.default, f32(2, 3, 6), [-1, 2], "reflect"),
        Case(aten.reflection_pad1d.default, f32(3, 4), [1, 2], emits=["Pad"]),
        Case(aten.reflection_pad2d.default, f32(2, 3, 4, 4), [1, 2, 0, 3]),
        Case(aten.reflection_pad3d.default, f32(3, 4, 4, 4), [1, 2, 0, 3, 1, 1]),
        Case(aten.replication_pad1d.default, f32(2, 3, 4), [5, 2], emits=["Pad"]),
        Case(aten.replication_pad2d.default, f64(3, 4, 4), [1, 2, 0, 3]),
        Case(aten.replication_pad3d.default, f32(1, 3, 4, 4, 4), [1, 2, 0, 3, 1, 1]),
        Case(aten.pad.default, f32(0, 3, 6), [1, 2], "circular", dynamic=False),
        Case(aten._pad_circular.default, f32(2, 3, 4), [1, 2], emits=["Pad"]),
        Case(aten._pad_enum.default, f32(2, 3, 4), [1, 2], 1, emits=["Pad"]),
    ]
)
def test_repeating(case: Case) -> None:
    check(case)
