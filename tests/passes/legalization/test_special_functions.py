"""Functions of one number are accurate in float64."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from fx_onnx.passes.legalization.legalize import Legalize64Bit
from tests.passes.checking import model, run

F64 = torch.float64

EVERYWHERE = torch.cat([torch.linspace(-40, 40, 4001, dtype=F64), torch.logspace(-12, 2, 50, dtype=F64)])

INSIDE = torch.cat([torch.linspace(-1, 1, 1001, dtype=F64), torch.logspace(-12, -1, 30, dtype=F64)])

ABOVE = torch.cat([1 + torch.logspace(-10, 3, 200, dtype=F64), torch.tensor([1.0, 1e200], dtype=F64)])

LIMITS = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0], dtype=F64)


@pytest.mark.parametrize(
    ("node", "want", "x"),
    [
        ("LeakyRelu<alpha=0.125>(x)", lambda x: F.leaky_relu(x, 0.125), EVERYWHERE),
        ("Elu(x)", F.elu, EVERYWHERE),
        ("Selu(x)", F.selu, EVERYWHERE),
        ("Softplus(x)", lambda x: F.softplus(x, threshold=1000), EVERYWHERE),
        ("Softsign(x)", F.softsign, EVERYWHERE),
        ("HardSigmoid<alpha=0.16666667>(x)", F.hardsigmoid, EVERYWHERE),
        ("HardSwish(x)", F.hardswish, EVERYWHERE),
        ("Gelu(x)", F.gelu, EVERYWHERE),
        ('Gelu<approximate="tanh">(x)', lambda x: F.gelu(x, approximate="tanh"), EVERYWHERE),
        ("Mish(x)", F.mish, EVERYWHERE),
        ("Erf(x)", torch.erf, EVERYWHERE),
        ("Tan(x)", torch.tan, EVERYWHERE),
        ("Sinh(x)", torch.sinh, EVERYWHERE),
        ("Cosh(x)", torch.cosh, EVERYWHERE),
        ("Asinh(x)", torch.asinh, torch.cat([EVERYWHERE, ABOVE])),
        ("Acosh(x)", torch.acosh, ABOVE),
        ("Atanh(x)", torch.atanh, INSIDE),
        ("Atan(x)", torch.atan, torch.cat([EVERYWHERE, ABOVE])),
        ("Asin(x)", torch.asin, INSIDE),
        ("Acos(x)", torch.acos, INSIDE),
    ],
)
def test_elementwise_functions(node: str, want: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    """The result is accurate to float64, also at infinities, NaN and zeros, and keeps its name."""
    program = model(f"g (double[N] x) => (double[N] y) {{ y = {node} }}", opset=22 if "Mish" in node else 20)
    Legalize64Bit()(program)
    assert program.graph.outputs[0].name == "y"
    x = torch.cat([x, LIMITS])
    torch.testing.assert_close(run(program, [x])[0], want(x), rtol=2e-12, atol=1e-14, equal_nan=True)
