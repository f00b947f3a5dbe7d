"""Bicubic upsampling with the coordinates that MNN reads rightly."""

import pytest
import torch

from fx_onnx.passes.legalization.cubic_resize import LegalizeCubicResize
from tests.passes.checking import check, model

X = torch.linspace(-2, 3, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5).sin()
RESIZE = 'Resize<mode="cubic", coordinate_transformation_mode="{}", cubic_coeff_a=-0.75>(x, , s)'


def text(scale: float, mode: str = "half_pixel") -> str:
    scales = f"<float[4] s = {{1.0, 1.0, {scale}, {scale}}}>"
    return f"g (float[B,3,H,W] x) => (float[B,3,P,Q] y) {scales} {{ y = {RESIZE.format(mode)} }}"


@pytest.mark.parametrize("scale", [2.0, 3.0, 4.0])
def test_whole_scales(scale: float) -> None:
    check(model(text(scale)), LegalizeCubicResize(), [X], ["Pad", "Resize", "Slice"])


@pytest.mark.parametrize(("scale", "mode"), [(1.5, "half_pixel"), (0.5, "half_pixel"), (2.0, "asymmetric")])
def test_others_stay(scale: float, mode: str) -> None:
    check(model(text(scale, mode)), LegalizeCubicResize(), [X], ["Resize"])
