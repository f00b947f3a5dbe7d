"""Resize as other operators."""

import pytest
import torch

from fx_onnx.backends.legalization.resizing import (
    legalize_antialiasing,
    legalize_computed_resizes,
    legalize_cubic_resize,
)
from tests.passes.checking import check, check_equal, model

# ---------------------------------------------------------------- bicubic upsampling


X = torch.linspace(-2, 3, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5).sin()
RESIZE = 'Resize<mode="cubic", coordinate_transformation_mode="{}", cubic_coeff_a=-0.75>(x, , s)'


def cubic(scale: float, mode: str = "half_pixel") -> str:
    scales = f"<float[4] s = {{1.0, 1.0, {scale}, {scale}}}>"
    return f"g (float[B,3,H,W] x) => (float[B,3,P,Q] y) {scales} {{ y = {RESIZE.format(mode)} }}"


@pytest.mark.parametrize("scale", [2.0, 3.0, 4.0])
def test_whole_scales(scale: float) -> None:
    check(model(cubic(scale)), legalize_cubic_resize, [X], ["Pad", "Resize", "Slice"])


@pytest.mark.parametrize(("scale", "mode"), [(1.5, "half_pixel"), (0.5, "half_pixel"), (2.0, "asymmetric")])
def test_other_cubic_resizes_stay(scale: float, mode: str) -> None:
    check(model(cubic(scale, mode)), legalize_cubic_resize, [X], ["Resize"])


# ---------------------------------------------------------------- Resize to a computed size


TEXT = """g (float[N,C,H,W] x, float[N,C,P,Q] z) => (float[N,C,P,Q] y) {{
  s = Shape(z)\n y = Resize<{attributes}>(x, , , s)
}}"""
LINEAR = [f'mode="linear", coordinate_transformation_mode="{each}"' for each in ("half_pixel", "align_corners")]
NEAREST = 'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"'


@pytest.mark.parametrize("attributes", [NEAREST, *LINEAR])
@pytest.mark.parametrize("size", [(6, 8), (5, 4), (2, 11), (1, 1)])
def test_computed_sizes(attributes: str, size: tuple[int, int]) -> None:
    program = model(TEXT.format(attributes=attributes))
    check_equal(program, legalize_computed_resizes, [torch.randn(2, 3, 3, 4), torch.zeros(2, 3, *size)], 1e-5)
    assert "Resize" not in [node.op_type for node in program.graph]


@pytest.mark.parametrize(
    "attributes",
    [NEAREST.replace('"floor"', '"ceil"'), NEAREST.replace("asymmetric", "half_pixel"), 'mode="cubic"'],
)
def test_other_modes_stay(attributes: str) -> None:
    assert not legalize_computed_resizes(model(TEXT.format(attributes=attributes))).modified


def test_constant_sizes_stay() -> None:
    text = f"""g (float[N,C,H,W] x) => (float[2,3,6,8] y) <int64[4] s = {{2, 3, 6, 8}}> {{
      y = Resize<{NEAREST}>(x, , , s)
    }}"""
    assert not legalize_computed_resizes(model(text)).modified


# ---------------------------------------------------------------- antialias, for TensorRT


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_is_a_product_for_each_axis(mode: str) -> None:
    text = f"""g (float[1,2,8,6] x) => (float[1,2,4,3] y) <float[4] s = {{1.0, 1.0, 0.5, 0.5}}> {{
      y = Resize<mode="{mode}", antialias=1>(x, , s) }}"""
    x = torch.linspace(-2, 3, 96).reshape(1, 2, 8, 6).sin()
    check(model(text), legalize_antialiasing, [x], ["Transpose", "MatMul", "Transpose", "MatMul"])


def test_a_resize_without_antialias_stays() -> None:
    text = """g (float[1,2,8,6] x) => (float[1,2,4,3] y) <float[4] s = {1.0, 1.0, 0.5, 0.5}> {
      y = Resize<mode="linear">(x, , s) }"""
    assert not legalize_antialiasing(model(text)).modified
