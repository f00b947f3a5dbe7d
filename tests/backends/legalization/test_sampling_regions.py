"""RoiAlign of opset 16 equals its form in opset 15."""

import pytest
import torch

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check, check_equal, model

# A wide region, small ones, one beyond the edges, one of size 0, and one whose corners are in the wrong order.
REGIONS = torch.tensor(
    [
        [0.0, 1.0, 30.0, 17.0], [2.0, 2.0, 2.2, 2.1], [-9.0, -9.0, 60.0, 3.0], [5.0, 5.0, 5.0, 5.0],
        [6.0, 6.0, 3.0, 2.0], [14.0, 9.0, 16.5, 13.0],
    ]
)  # fmt: skip
INPUTS = [torch.randn(2, 3, 8, 10), REGIONS, torch.tensor([0, 1, 1, 0, 0, 1])]
ROI_ALIGN = """g (float[N,C,H,W] x, float[R,4] r, int64[R] b) => (float[A,B,C,D] y) {{
  y = RoiAlign<output_height=2, output_width=3, spatial_scale=0.5, sampling_ratio={}{}>(x, r, b)
}}"""


@pytest.mark.parametrize("ratio", [0, 2])
def test_regions_aligned_to_centers(ratio: int) -> None:
    """With as many samples as the size of the region needs, and with two."""
    check_equal(model(ROI_ALIGN.format(ratio, ""), opset=16), OpsetStep(15), INPUTS)


def test_other_regions_keep_the_operator() -> None:
    mode = ', coordinate_transformation_mode="output_half_pixel"'
    check(model(ROI_ALIGN.format(0, mode), opset=16), OpsetStep(15), INPUTS, ["RoiAlign"])


def test_no_region() -> None:
    program = model(ROI_ALIGN.format(0, ""), opset=16)
    check_equal(program, OpsetStep(15), [INPUTS[0], torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)])


def test_a_maximum_is_refused() -> None:
    with pytest.raises(OnnxExporterError, match=r"it takes the maximum of regions.*opset_version=16 or above"):
        OpsetStep(15)(model(ROI_ALIGN.format(0, ', mode="max"'), opset=16))
