"""Opset 16 → 15: regions and bfloat16."""

import pytest
import torch

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.passes.legalization.opsets.step_15 import STEP_15
from tests.passes.checking import check, model

REGIONS = [torch.randn(1, 2, 8, 8), torch.tensor([[0.0, 1.0, 6.0, 7.0], [2.0, 2.0, 2.2, 2.1]]), torch.tensor([0, 0])]
ROI_ALIGN = """g (float[1,2,8,8] x, float[2,4] r, int64[2] b) => (float[A,B,C,D] y)
{ y = RoiAlign<output_height=2, output_width=3, coordinate_transformation_mode="%s">(x, r, b) }"""


def test_roi_align() -> None:
    check(model(ROI_ALIGN % "output_half_pixel", opset=16), STEP_15, REGIONS, ["RoiAlign"])


def test_bfloat16_is_computed_in_float32() -> None:
    """Where admits bfloat16 from opset 16 on."""
    program = model("g (bool[N] c, bfloat16[N] x) => (bfloat16[N] y) { y = Where(c, x, x) }", opset=16)
    STEP_15(program)
    assert [node.op_type for node in program.graph] == ["Cast", "Where", "Cast"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROI_ALIGN[2:] % "half_pixel", "its regions are aligned to the centers of pixels"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=f"{message}.*opset_version=16 or above"):
        STEP_15(model(f"g {text}", opset=16))
