"""GridSample of opset 16 equals its form in opset 15."""

import pytest
import torch

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check_equal, model

GRID_SAMPLE = """g (float[N,C,H,W] x, float[N,A,B,2] g) => (float[N,C,A,B] y)
{{ y = GridSample<mode="{}", padding_mode="{}", align_corners={}>(x, g) }}"""


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_equals_the_operator(mode: str, padding: str, align: int) -> None:
    """Positions in the image, at its edges, and several sizes beyond them; an infinity beyond the edge adds nothing."""
    torch.manual_seed(0)
    grid = torch.randn(2, 9, 5, 2) * 1.5
    grid[0, 0, 0], grid[0, 0, 1], grid[0, 0, 2] = torch.tensor([[-1.0, 1.0], [-1.01, 0.3], [0.0, 0.0]])
    image = torch.randn(2, 3, 4, 6)
    check_equal(model(GRID_SAMPLE.format(mode, padding, align), opset=16), OpsetStep(15), [image, grid])


def test_an_empty_batch() -> None:
    program = model(GRID_SAMPLE.format("bilinear", "zeros", 0), opset=16)
    check_equal(program, OpsetStep(15), [torch.randn(0, 3, 4, 6), torch.randn(0, 9, 5, 2)])


def test_cubic_interpolation_is_refused() -> None:
    with pytest.raises(OnnxExporterError, match=r"its mode is bicubic.*opset_version=16 or above"):
        OpsetStep(15)(model(GRID_SAMPLE.format("bicubic", "zeros", 0), opset=16))
