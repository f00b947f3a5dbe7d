"""Convolutions and transposed convolutions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fx_onnx
from tests.compare import assert_close
from tests.harness import Case, cases, check, f32

aten = torch.ops.aten


class Convolves(torch.nn.Module):
    """Calls a convolution with numbers that may be computed from the last size of x."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]) -> None:
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(torch.randn(3, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight, x.shape[-1] // 8)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, n: F.conv1d(x, w, padding=2 * n),
        lambda x, w, n: F.conv2d(x[:, :, None], w[:, :, None], padding=(0, n)),
        lambda x, w, n: F.conv_transpose1d(x, w, padding=n),
        lambda x, w, n: aten.convolution(x, w, None, [1], [n], [1], False, [0], 1),
    ],
)
def test_padding_from_a_size(function: Any) -> None:
    model = Convolves(function)
    program = fx_onnx.export(model, (torch.randn(2, 3, 8),), dynamic_shapes=({2: "t"},))
    assert not program.findings
    x = torch.randn(2, 3, 19)
    assert_close(program(x), (model(x),))


def modulated(x: torch.Tensor, w: torch.Tensor, *, function: Any, biased: bool = False, **options: Any) -> torch.Tensor:
    """Convolves each image with weights of its own, as one image with a group for each, which StyleGAN does."""
    count = x.shape[0]
    weight = (w * x.flatten(1).mean(1).reshape(-1, *[1] * w.dim())).flatten(0, 1)
    bias = x.flatten(1)[:, :6].flatten() if biased else None
    return function(x.reshape(1, -1, *x.shape[2:]), weight, bias, groups=count, **options)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (F.conv1d, {}),
        (F.conv1d, {"stride": 2, "padding": 1, "biased": True}),
        (F.conv2d, {"padding": (2, 1), "dilation": (1, 2)}),
        (F.conv2d, {"padding": "same", "biased": True}),
        (F.conv3d, {"stride": (1, 2, 1)}),
        (F.conv_transpose1d, {}),
        (F.conv_transpose2d, {"stride": 2, "padding": 1, "output_padding": 1, "biased": True}),
        (F.conv_transpose2d, {"dilation": (2, 1), "output_padding": (1, 0)}),
        (F.conv_transpose3d, {"stride": (1, 2, 1)}),
        (lambda x, w, b, **options: F.conv2d(x[0], w, b, **options), {}),
        (lambda x, w, b, **options: F.conv_transpose2d(x[0], w, b, **options), {"stride": 2}),
        (lambda x, w, b, **options: F.conv2d(x, w[..., :1, :1], b, **options), {}),
    ],
)
def test_groups_from_a_size(function: Any, options: dict[str, Any]) -> None:
    axes = next((axes for axes in (1, 3) if f"{axes}d" in getattr(function, "__name__", "")), 2)
    w = torch.nn.Parameter(torch.randn(6, 6, *(3, 2, 3)[:axes]))
    model = Convolves(lambda x, *_: modulated(x, w, function=function, **options))
    sizes = (5, 6, 7)[:axes]
    program = fx_onnx.export(model, (torch.randn(2, 6, *sizes),), dynamic_shapes=({0: "n"},))
    assert not program.findings
    for count in (1, 2, 3):
        x = torch.randn(count, 6, *sizes)
        assert_close(program(x), (model(x),))


def test_a_stride_from_a_size_is_refused_in_a_sentence() -> None:
    model = Convolves(lambda x, w, n: F.conv1d(x, w, stride=n))
    with pytest.raises(
        fx_onnx.OnnxExporterError, match=r"ONNX needs a constant where .* the size .*; make the dim sta"
    ):
        fx_onnx.export(model, (torch.randn(2, 3, 8),), dynamic_shapes=({2: "t"},))


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
