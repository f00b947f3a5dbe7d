"""Upsampling."""

from typing import Any

import pytest
import torch
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
