"""Resize to a computed size as Gathers."""

import pytest
import torch

from fx_onnx.passes.legalization.computed_resizes import LegalizeComputedResizes
from tests.passes.checking import check_equal, model

TEXT = """g (float[N,C,H,W] x, float[N,C,P,Q] z) => (float[N,C,P,Q] y) {{
  s = Shape(z)\n y = Resize<{attributes}>(x, , , s)
}}"""
LINEAR = [f'mode="linear", coordinate_transformation_mode="{each}"' for each in ("half_pixel", "align_corners")]
NEAREST = 'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"'


@pytest.mark.parametrize("attributes", [NEAREST, *LINEAR])
@pytest.mark.parametrize("size", [(6, 8), (5, 4), (2, 11), (1, 1)])
def test_computed_sizes(attributes: str, size: tuple[int, int]) -> None:
    program = model(TEXT.format(attributes=attributes))
    check_equal(program, LegalizeComputedResizes(), [torch.randn(2, 3, 3, 4), torch.zeros(2, 3, *size)], 1e-5)
    assert "Resize" not in [node.op_type for node in program.graph]


@pytest.mark.parametrize(
    "attributes",
    [NEAREST.replace('"floor"', '"ceil"'), NEAREST.replace("asymmetric", "half_pixel"), 'mode="cubic"'],
)
def test_others_stay(attributes: str) -> None:
    assert not LegalizeComputedResizes()(model(TEXT.format(attributes=attributes))).modified


def test_constant_sizes_stay() -> None:
    text = f"""g (float[N,C,H,W] x) => (float[2,3,6,8] y) <int64[4] s = {{2, 3, 6, 8}}> {{
      y = Resize<{NEAREST}>(x, , , s)
    }}"""
    assert not LegalizeComputedResizes()(model(text)).modified
