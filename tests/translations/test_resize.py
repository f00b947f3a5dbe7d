"""Upsampling."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import fx_onnx
from tests.harness import Case, cases, check, f32, u8

aten = torch.ops.aten


@cases(
    [
        Case(aten.upsample_nearest1d.vec, f32(2, 3, 5), None, [2.0], emits=["Resize"]),
        Case(aten.upsample_nearest2d.vec, f32(2, 3, 5, 6), None, [2.0, 3.0], emits=["Resize"]),
        Case(aten.upsample_nearest2d.vec, f32(2, 3, 5, 6), None, [1.7, 0.6], emits=["Resize"]),
        Case(aten.upsample_nearest2d.vec, f32(2, 3, 5, 6), [7, 9], None, emits=["Resize"]),
        Case(aten.upsample_nearest3d.vec, f32(2, 3, 5, 6, 4), None, [2.0, 1.0, 0.5], emits=["Resize"]),
        Case(aten.upsample_nearest1d.default, f32(2, 3, 5), [7]),
        Case(aten.upsample_nearest2d.default, f32(2, 3, 5, 6), [8, 10], 1.7, 1.7),
        Case(aten.upsample_nearest2d.default, f32(2, 3, 41, 6), [41 * 41, 6], dynamic=False),
        Case(aten.upsample_nearest1d.vec, f32(2, 3, 82), None, [10.25]),
        Case(aten.upsample_nearest3d.default, f32(2, 3, 5, 6, 4), [3, 4, 5]),
        Case(aten.upsample_nearest2d.vec, u8(2, 3, 5, 6), None, [2.0, 3.0], emits=["Resize"]),
        Case(aten._upsample_nearest_exact1d.vec, f32(2, 3, 5), None, [2.0], emits=["Resize"]),
        Case(aten._upsample_nearest_exact2d.vec, f32(2, 3, 5, 6), None, [1.7, 0.6]),
        Case(aten._upsample_nearest_exact2d.vec, f32(2, 3, 5, 6), [3, 9], None, emits=["Resize"]),
        Case(aten._upsample_nearest_exact3d.default, f32(2, 3, 5, 6, 4), [3, 4, 5]),
    ]
)
def test_nearest(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.upsample_linear1d.vec, f32(2, 3, 5), None, False, [2.0], emits=["Resize"]),
        Case(aten.upsample_bilinear2d.vec, f32(2, 3, 5, 6), None, False, [2.0, 3.0], emits=["Resize"]),
        Case(aten.upsample_bilinear2d.vec, f32(2, 3, 10, 100), None, False, [0.7, 0.29]),
        Case(aten.upsample_bilinear2d.vec, f32(2, 3, 5, 6), None, True, [1.7, 0.6], emits=["Resize"]),
        Case(aten.upsample_bilinear2d.vec, f32(2, 3, 5, 6), [1, 9], False, None, emits=["Resize"]),
        Case(aten.upsample_bilinear2d.vec, f32(2, 3, 5, 6), [1, 9], True, None, emits=["Resize"]),
        Case(aten.upsample_bilinear2d.default, f32(2, 3, 5, 6), [8, 10], False, 1.7, 1.7),
        Case(aten.upsample_bilinear2d.default, f32(2, 3, 5, 6), [8, 11], False, 1.7, None),
        Case(aten.upsample_trilinear3d.vec, f32(2, 3, 5, 6, 4), None, False, [2.0, 1.0, 0.5], emits=["Resize"]),
        Case(aten.upsample_bicubic2d.vec, f32(2, 3, 5, 6), None, False, [2.0, 1.5], emits=["Resize"]),
        Case(aten.upsample_bicubic2d.vec, f32(2, 3, 5, 6), [9, 1], False, None, emits=["Resize"]),
        Case(aten.upsample_bicubic2d.vec, f32(2, 3, 5, 6), [9, 4], True, None, emits=["Resize"]),
        Case(aten._upsample_bilinear2d_aa.vec, f32(2, 3, 9, 8), [4, 5], False, None, emits=["Resize"]),
        Case(aten._upsample_bilinear2d_aa.vec, f32(2, 3, 9, 8), None, False, [0.6, 0.7], emits=["Resize"]),
        Case(aten._upsample_bilinear2d_aa.vec, f32(2, 3, 9, 8), [4, 5], True, None),
        Case(aten._upsample_bicubic2d_aa.vec, f32(2, 3, 9, 8), [4, 12], False, None, emits=["Resize"]),
        Case(aten.upsample_bilinear2d.vec, u8(2, 3, 5, 6, high=255), [7, 9], False, None, dynamic=False),
        Case(aten._upsample_bicubic2d_aa.default, f32(2, 3, 9, 8), [4, 12], True),
    ]
)
def test_interpolation(case: Case) -> None:
    check(case)


@cases(
    [
        Case(functional.interpolate, f32(2, 3, 8, 6), scale_factor=0.5, mode="area", emits=["AveragePool"]),
        Case(functional.interpolate, f32(2, 3, 8, 6), size=(5, 4), mode="area"),
        Case(functional.interpolate, f32(2, 3, 5, 6), scale_factor=1.5, mode="bilinear", recompute_scale_factor=True),
    ]
)
def test_interpolate(case: Case) -> None:
    check(case)


DYNAMIC = {0: "batch", 2: "height", 3: "width"}


@pytest.mark.parametrize(
    ("options", "dims"),
    [
        ({"scale_factor": (2.0, 3.0)}, {}),
        ({"scale_factor": (2.0, 3.0)}, DYNAMIC),
        ({"scale_factor": 1.7}, {}),
        ({"size": (7, 9)}, {}),
        ({"size": (7, 9)}, DYNAMIC),
    ],
    ids=str,
)
def test_factors_and_sizes_are_of_all_axes(options: dict[str, Any], dims: dict[int, str]) -> None:
    """Several runtimes ignore or refuse the attribute ``axes``."""
    resize = torch.nn.Upsample(**options, mode="bilinear")
    model = fx_onnx.export(resize, (torch.randn(2, 3, 5, 6),), dynamic_shapes=(dims,), verbose=False).model
    (node,) = [node for node in model.graph if node.op_type == "Resize"]
    assert "axes" not in node.attributes
    (sizes_or_scales,) = [value for value in node.inputs[2:] if value is not None]
    assert sizes_or_scales.shape is None or list(sizes_or_scales.shape) == [4]


class ToSize(torch.nn.Module):
    """Enlarges x to a number of columns that is computed from its own."""

    def __init__(self, size: Callable[[int], int], mode: str) -> None:
        super().__init__()
        self.size, self.mode = size, mode

    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(x, size=self.size(x.shape[2]), mode=self.mode)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize(
    ("size", "emitted"), [(lambda n: 4, "Gather"), (lambda n: n + 5, "Gather"), (lambda n: 3 * n, "Resize")]
)
def test_nearest_to_a_size_of_a_dynamic_axis(size: Callable[[int], int], emitted: str, mode: str) -> None:
    """Resize rounds the ratio of two sizes differently from torch: it reads other elements from 14 to 4."""
    module = ToSize(size, mode)
    program = fx_onnx.export(module, (torch.rand(1, 2, 9),), dynamic_shapes=({2: "n"},))
    assert emitted in {node.op_type for node in program.model.graph}
    for columns in (1, 3, 14, 33, 82):
        x = torch.rand(1, 2, columns)
        torch.testing.assert_close(program(x)[0], module(x), rtol=0, atol=0)


class ByFactor(torch.nn.Module):
    """Enlarges x by factors, of which some leave an axis of 2 or 3 as it is."""

    def __init__(self, factors: tuple[float, ...], mode: str, antialias: bool) -> None:
        super().__init__()
        self.factors, self.mode, self.antialias = factors, mode, antialias

    def forward(self, x: Tensor) -> Tensor:
        return functional.interpolate(x, scale_factor=self.factors, mode=self.mode, antialias=self.antialias)


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(
    ("mode", "antialias", "factors"),
    [
        ("nearest", False, (1.4,)),
        ("nearest", False, (1.25,)),
        ("nearest-exact", False, (1.25, 2.0)),
        ("linear", False, (1.4,)),
        ("bilinear", False, (1.4, 2.0)),
        ("bilinear", False, (1.25, 1.25)),
        ("bilinear", True, (1.4, 2.0)),
        ("bicubic", False, (1.4, 1.2)),
        ("bicubic", False, (1.25, 1.25)),
        ("bicubic", True, (1.25, 1.25)),
        ("trilinear", False, (1.4, 1.2, 2.0)),
    ],
)
def test_an_axis_keeps_its_size(mode: str, antialias: bool, factors: tuple[float, ...], is_dynamic: bool) -> None:
    """torch copies such an axis where it interpolates linearly, and ONNX Runtime where all axes are such."""
    module = ByFactor(factors, mode, antialias)
    sizes = (2, 3, 3)[: len(factors)]
    example = torch.rand(1, 2, *(5 if is_dynamic else size for size in sizes))
    axes = {2 + axis: f"n{axis}" for axis in range(len(sizes))} if is_dynamic else {}
    program = fx_onnx.export(module, (example,), dynamic_shapes=(axes,))
    for x in (torch.rand(1, 2, *sizes), example):
        torch.testing.assert_close(program(x)[0], module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_corners_of_a_result_of_one_element(mode: str, antialias: bool) -> None:
    module = torch.nn.Module()
    options: Any = {"scale_factor": 0.6, "mode": mode, "align_corners": True, "antialias": antialias}
    module.forward = lambda x: functional.interpolate(x, **options)
    shapes = ({2: "height", 3: "width"},)
    program = fx_onnx.export(module, (torch.rand(1, 2, 5, 7),), dynamic_shapes=shapes, verbose=False)
    for sizes in ((2, 2), (3, 3), (3, 9), (2, 8), (9, 11)):
        x = torch.rand(1, 2, *sizes)
        torch.testing.assert_close(program(x)[0], module(x))
