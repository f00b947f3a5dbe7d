"""Functions of a float with a dynamic value: right for other values of the float, or refused with a sentence."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.messages.errors import CaptureError

FUNCTIONS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "attention": lambda x, t: F.scaled_dot_product_attention(x, x, x, scale=t),
    "attention_causal": lambda x, t: F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=1 / t),
    "leaky_relu": lambda x, t: F.leaky_relu(x, t),
    "elu": lambda x, t: F.elu(x, t),
    "celu": lambda x, t: F.celu(x, t),
    "softplus_beta": lambda x, t: F.softplus(x, t),
    "softplus_threshold": lambda x, t: F.softplus(x, 2, t),
    "threshold": lambda x, t: F.threshold(x, t / 5, t + 1),
    "hardtanh": lambda x, t: F.hardtanh(x, -t / 5, t / 5),
    "hardshrink": lambda x, t: F.hardshrink(x, t / 5),
    "softshrink": lambda x, t: F.softshrink(x, t / 5),
    "rrelu": lambda x, t: F.rrelu(x, t, t + 1),
    "clamp": lambda x, t: x.clamp(-t / 5, t / 5),
    "add_alpha": lambda x, t: torch.add(x, x, alpha=t),
    "addmm": lambda x, t: torch.addmm(x[0, 0], x[0, 0], x[0, 0].mT @ x[0, 0], beta=t, alpha=t + 1),
    "addmv": lambda x, t: x[0, 0, :, 0].addmv(x[0, 0], x[0, 0, 0], beta=t, alpha=2),
    "addr": lambda x, t: torch.addr(x[0, 0], x[0, 0, :, 0], x[0, 0, 0], beta=t, alpha=t),
    "baddbmm": lambda x, t: torch.baddbmm(x[0], x[0], x[0].mT @ x[0], beta=t, alpha=t),
    "addcmul": lambda x, t: torch.addcmul(x, x, x, value=t),
    "lerp": lambda x, t: torch.lerp(x, x * 2, t),
    "floor_divide": lambda x, t: x // t,
    "floor_divide_of_float": lambda x, t: t // (x.abs() + 1),
    "remainder": lambda x, t: x % t,
    "copysign": lambda x, t: torch.copysign(x, -t),
    "xlogy": lambda x, t: torch.xlogy(x, t),
    "xlog1py": lambda x, t: torch.special.xlog1py(x, t),
    "pad": lambda x, t: F.pad(x, (1, 2), value=t),
    "layer_norm": lambda x, t: F.layer_norm(x, (4,), eps=t),
    "interpolate": lambda x, t: F.interpolate(x, scale_factor=t),
    "rms_norm": lambda x, t: F.rms_norm(x, (4,), eps=t),
    "linspace": lambda x, t: torch.linspace(0, t, 4) + x,
    "logspace": lambda x, t: torch.logspace(0, t, 4) + x,
    "as_tensor": lambda x, t: torch.maximum(x, torch.as_tensor(t)),
    "histc": lambda x, t: torch.histc(x, 4, -t / 5, t / 5),
    "vector_norm": lambda x, t: torch.linalg.vector_norm(x, t),
    "masked_fill": lambda x, t: x.masked_fill(x > 0, t),
    "math": lambda x, t: x * math.exp(-t) + math.log(t) * math.sin(t) + math.tanh(t),
    "root": lambda x, t: x * math.sqrt(t),
}


class AllFunctions(nn.Module):
    def forward(self, x: Tensor, t: float) -> tuple[Tensor, ...]:
        return tuple(function(x, t) for function in FUNCTIONS.values())


X = torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def captured() -> torch.export.ExportedProgram | None:
    """All functions of a float in one program, which each opset reads."""
    program = fx_onnx.export(AllFunctions().eval(), (X[:2], 2.5), dynamic_shapes=({0: "n"}, Dim.DYNAMIC))
    return program.exported_program


@pytest.mark.parametrize("opset", [20, 23])
def test_right_for_other_values(opset: int, captured: torch.export.ExportedProgram) -> None:
    model, x = AllFunctions().eval(), X
    program = fx_onnx.export(captured, opset_version=opset)
    for number in (2.5, 0.75, 4.0):
        for name, found, expected in zip(FUNCTIONS, program(x, number), model(x, number), strict=False):
            torch.testing.assert_close(
                found, expected, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


class Refused(nn.Module):
    def __init__(self, function: Callable[[Tensor, Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, t: float) -> Any:
        return self.function(x, t)


def test_a_norm_of_an_infinite_order() -> None:
    model, x = Refused(lambda x, t: torch.linalg.vector_norm(x, t, dim=1)).eval(), torch.randn(2, 3)
    program = fx_onnx.export(model, (x, 2.5), dynamic_shapes=(None, Dim.DYNAMIC))
    for order in (math.inf, -math.inf, 0.0, 3.0):
        torch.testing.assert_close(program(x, order)[0], model(x, order))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, t: x * t if math.isnan(t) else x,
        lambda x, t: torch.histc(x, int(t)),
        lambda x, t: x * math.log2(t),
    ],
)
def test_a_value_that_torch_needs_is_refused_in_one_sentence(function: Callable[[Tensor, Any], Any]) -> None:
    with pytest.raises(CaptureError, match="could not capture Refused") as caught:
        fx_onnx.export(Refused(function).eval(), (torch.randn(1, 2, 4, 4), 2.5), dynamic_shapes=(None, Dim.DYNAMIC))
    assert "\n" not in str(caught.value)
