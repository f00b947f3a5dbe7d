"""Resize of opset 11 equals its form in opset 10, with static sizes, dynamic sizes and constant scales."""

import pytest
import torch

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check, check_equal, model

IMAGE = torch.randn(2, 3, 6, 8)
ROI = "float[0] r, float[0] none"
MODES = [
    'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
    'mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"',
    'mode="linear", coordinate_transformation_mode="half_pixel"',
    'mode="linear", coordinate_transformation_mode="pytorch_half_pixel"',
    'mode="linear", coordinate_transformation_mode="align_corners"',
]
modes = pytest.mark.parametrize("mode", MODES)


@modes
@pytest.mark.parametrize("sizes", [(9, 5), (1, 12), (12, 1)])
def test_sizes_of_the_run(mode: str, sizes: tuple[int, int]) -> None:
    text = f"""(float[2,3,H,W] x, int64[2] s) => (float[2,3,A,B] y) <float[0] e = {{}}, int64[2] f = {{2,3}}> {{
      all = Concat<axis=0>(f, s)\n y = Resize<{mode}>(x, e, e, all)
    }}"""
    check_equal(model(f"g {text}", opset=11), OpsetStep(10), [IMAGE, torch.tensor(sizes)])


@modes
def test_constant_scales(mode: str) -> None:
    for scales in ("1.0,1.0,2.0,1.5", "1.0,1.0,0.5,0.75"):
        text = f"""(float[A,B,H,W] x) => (float[A,B,C,D] y) <float[0] e = {{}}, float[4] s = {{{scales}}}>
        {{ y = Resize<{mode}>(x, e, s) }}"""
        check_equal(model(f"g {text}", opset=11), OpsetStep(10), [IMAGE])


@modes
def test_static_sizes(mode: str) -> None:
    text = f"""(float[2,3,6,8] x) => (float[2,3,9,5] y) <float[0] e = {{}}, int64[4] s = {{2,3,9,5}}>
    {{ y = Resize<{mode}>(x, e, e, s) }}"""
    check_equal(model(f"g {text}", opset=11), OpsetStep(10), [IMAGE])


def test_nearest_elements_at_whole_scales_keep_the_operator() -> None:
    text = f"""(float[A,B,H,W] x) => (float[A,B,C,D] y) <float[0] e = {{}}, float[4] s = {{1.0,1.0,2.0,3.0}}>
    {{ y = Resize<{MODES[0]}>(x, e, s) }}"""
    check(model(f"g {text}", opset=11), OpsetStep(10), [IMAGE], ["Resize"])


def test_cubic_interpolation_to_sizes_of_the_run_is_refused() -> None:
    text = """(float[2,3,H,W] x, int64[4] s) => (float[A,B,C,D] y) <float[0] e = {}>
    { y = Resize<mode="cubic">(x, e, e, s) }"""
    with pytest.raises(OnnxExporterError, match="its mode is cubic with half_pixel, and its sizes are not static"):
        OpsetStep(10)(model(f"g {text}", opset=11))


def test_interpolation_of_integers_is_refused() -> None:
    text = """(uint8[2,3,6,8] x) => (uint8[2,3,9,5] y) <float[0] e = {}, int64[4] s = {2,3,9,5}>
    { y = Resize<mode="linear">(x, e, e, s) }"""
    with pytest.raises(OnnxExporterError, match="it interpolates integers"):
        OpsetStep(10)(model(f"g {text}", opset=11))
