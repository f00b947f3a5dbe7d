"""Resize of float64 by interpolation matrices: the results are torch's."""

from typing import Any

import pytest
import torch

import fx_onnx

OPTIONS: list[dict[str, bool]] = [{}, {"align_corners": True}, {"antialias": True}]


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("nearest", {}),
        ("nearest-exact", {}),
        *((mode, options) for mode in ("bilinear", "bicubic") for options in OPTIONS),
    ],
)
@pytest.mark.parametrize("target", [{"size": (7, 12)}, {"scale_factor": (1.7, 0.6)}, {"size": (3, 6)}])
def test_interpolate(mode: str, options: dict[str, bool], target: dict[str, Any]) -> None:
    """Axes that grow, shrink and keep their size."""

    class Resized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(x, mode=mode, **target, **options)

    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    program = fx_onnx.export(Resized().eval(), (x,), verbose=False)
    assert "Resize" not in {node.op_type for node in program.model.graph}
    torch.testing.assert_close(program(x)[0], Resized()(x), rtol=1e-12, atol=1e-13)
