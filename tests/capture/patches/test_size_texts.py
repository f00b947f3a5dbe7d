"""A result that depends on the text of a size has a static dim; a message may contain the text."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fx_onnx

SCALES = {"5": 1.0, "6": 2.0, "10": 3.0}
MESSAGES: list[str] = []


class Call(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def message(x: Tensor) -> Tensor:
    MESSAGES.append(f"{x.shape} {x.shape[0]:3d} {x.shape[0] / 2:.1f} {x.shape[0]!r} {x.sum().item()}")
    logging.getLogger("model").debug("%s rows", x.shape[0])
    return x * 2


def test_text_on_which_no_result_depends() -> None:
    program = fx_onnx.export(Call(message).eval(), (torch.ones(5, 4),), dynamic_shapes=({0: "n"},))
    assert not program.findings and str(program.dims) == "n: any"
    assert any(text.startswith("torch.Size([5, 4])   5 2.5 5 ") for text in MESSAGES)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * SCALES[f"{x.shape[0]}"],
        lambda x: x * SCALES.get(str(x.shape[0]), 4.0),
        lambda x: x * len(str(2 * x.shape[0])),
        lambda x: x * int(f"{x.shape[0]:03d}"),
        lambda x: x + 1 if str(x.shape) == "torch.Size([5, 4])" else x,
        lambda x: x * float(f"{x.shape[0] / 3:.2f}"),
    ],
)
def test_a_result_that_depends_on_text(function: Callable[[Tensor], Tensor]) -> None:
    model, x = Call(function).eval(), torch.ones(5, 4)
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="FX120"):
        program = fx_onnx.export(model, (x,), dynamic_shapes=({0: "n"},))
    (finding,) = program.findings
    assert finding.place == f"{__file__}:{function.__code__.co_firstlineno}"
    torch.testing.assert_close(program(x)[0], model(x))


def test_a_result_that_depends_on_the_text_of_data() -> None:
    with pytest.raises(fx_onnx.CaptureError, match="known only when the model runs"):
        fx_onnx.export(Call(lambda x: x + len(str(x.sum().item()))).eval(), (torch.full((5,), 0.1),))


def test_a_model_without_values() -> None:
    model = Call(lambda x: x * len(str(x.shape[0]))).eval()
    model.weight = nn.Parameter(torch.ones(2, device="meta"))
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"may be wrong for sizes .* makes text of a size .*FX1202"):
        fx_onnx.export(model, (torch.ones(5, 4, device="meta"),), dynamic_shapes=({0: "n"},))


def test_a_dim_that_is_twice_a_symbol() -> None:
    model, shapes = Call(lambda x: x * len(str(x.shape[0]))).eval(), ({0: 2 * torch.export.Dim("half")},)
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"may be wrong for sizes .*FX1202"):
        fx_onnx.export(model, (torch.ones(6, 4),), dynamic_shapes=shapes)
