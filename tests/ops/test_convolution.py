"""Convolutions and transposed convolutions."""

import torch

from tests.harness import Case, cases, check, f32

aten = torch.ops.aten


@cases(
    [
        Case(aten.conv1d.default, f32(2, 4, 9), f32(6, 4, 3), f32(6), emits=["Conv"]),
        Case(aten.conv1d.default, f32(4, 9), f32(6, 4, 3), emits=["Unsqueeze", "Conv", "Squeeze"]),
        Case(aten.conv1d.default, f32(2, 4, 9), f32(6, 2, 3, fixed=True), None, [2], [1], [2], 2),
        Case(aten.conv2d.default, f32(2, 4, 9, 8), f32(6, 4, 3, 2), f32(6), emits=["Conv"]),
        Case(
            aten.conv2d.default, f32(2, 4, 9, 8), f32(8, 1, 3, 3, fixed=True), None, [2, 1], [1, 2], [1, 2], 4,
            emits=["Conv"],
        ),
        Case(aten.conv2d.default, f32(2, 4, 9, 8), f32(8, 1, 3, 3, fixed=True), None, [2], [1], [1], 4),
        Case(aten.conv2d.default, f32(4, 9, 8), f32(6, 4, 3, 2), f32(6)),
        Case(aten.conv3d.default, f32(2, 4, 5, 6, 7), f32(6, 4, 3, 2, 1), f32(6), [1, 2, 1], [1, 0, 0], emits=["Conv"]),
        Case(aten.conv3d.default, f32(4, 5, 6, 7), f32(6, 4, 3, 2, 1)),
        Case(aten.convolution.default, f32(1, 2, 7), f32(3, 2, 3), None, [1], [1], [1], False, [0], 1, emits=["Conv"]),
        Case(
            aten.convolution.default, f32(1, 2, 7), f32(2, 3, 3), f32(3), [2], [1], [1], True, [1], 1,
            emits=["ConvTranspose"],
        ),
        Case(
            aten._convolution.default, f32(1, 2, 7), f32(3, 2, 3), None, [1], [1], [1], False, [0], 1,
            False, False, True, True,
        ),
        Case(aten.conv_tbc.default, f32(7, 2, 4), f32(3, 4, 5), f32(5), 1),
    ]
)  # fmt: skip
def test_convolution(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.conv1d.padding, f32(2, 4, 9), f32(6, 4, 4), f32(6), [1], "same", emits=["Conv"]),
        Case(aten.conv2d.padding, f32(2, 4, 9, 8), f32(6, 4, 3, 4), None, [1, 1], "same", [2, 1]),
        Case(
            aten.conv2d.padding,
            f32(2, 4, 9, 8),
            f32(6, 2, 3, 4, fixed=True),
            None,
            [2, 1],
            "valid",
            [1, 2],
            2,
            emits=["Conv"],
        ),
        Case(aten.conv3d.padding, f32(2, 5, 6, 7), f32(6, 2, 3, 2, 1), None, [1], "same"),
    ]
)
def test_padding_by_name(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.conv_transpose1d.default, f32(2, 4, 5), f32(4, 3, 3), f32(3), emits=["ConvTranspose"]),
        Case(aten.conv_transpose1d.default, f32(4, 5), f32(4, 3, 3), f32(3), [2], [1], [1]),
        Case(
            aten.conv_transpose2d.input, f32(2, 4, 5, 6, fixed=True), f32(4, 3, 3, 2, fixed=True), f32(6,
            fixed=True), [2, 3], [1, 0], [1, 2], 2, [1, 2],
            emits=["ConvTranspose"],
        ),
        Case(aten.conv_transpose2d.input, f32(4, 5, 6), f32(4, 3, 3, 2)),
        Case(
            aten.conv_transpose2d.input, f32(2, 4, 5, 6), f32(4, 3, 3, 2), f32(3), [2], [1], [2], 1, [3],
            emits=["ConvTranspose", "Pad", "Reshape", "Add"],
        ),
        Case(aten.convolution.default, f32(2, 4, 5), f32(4, 3, 3), f32(3), [1], [2], [3], True, [1], 1),
        Case(aten.conv_transpose3d.input, f32(2, 4, 3, 4, 5), f32(4, 3, 3, 2, 1), None, [2, 1, 1], [1, 0, 0]),
    ]
)  # fmt: skip
def test_conv_transpose(case: Case) -> None:
    check(case)
