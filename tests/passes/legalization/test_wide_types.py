"""What ONNX Runtime's CPU provider lacks in 64 bits, by other operators: against torch in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fx_onnx
from fx_onnx.passes.legalization.wide_types import FORMS, LegalizeWideTypes
from tests.passes.checking import model, run

F64 = torch.float64
OPTIONS = ("", "align_corners", "antialias")
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
def test_of_one_number(node: str, want: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    """To float64's accuracy, at the limits too; the name of the result stays."""
    program = model(f"g (double[N] x) => (double[N] y) {{ y = {node} }}", opset=22 if "Mish" in node else 20)
    LegalizeWideTypes()(program)
    assert program.graph.outputs[0].name == "y"
    x = torch.cat([x, LIMITS])
    torch.testing.assert_close(run(program, [x])[0], want(x), rtol=2e-12, atol=1e-14, equal_nan=True)


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Conv1d(4, 6, 3, stride=2, padding=1),
        torch.nn.Conv2d(4, 8, (3, 2), padding=(2, 1), dilation=(2, 1), groups=2, bias=False),
        torch.nn.Conv3d(4, 4, 2, groups=4),
        torch.nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        torch.nn.ConvTranspose2d(4, 3, (3, 2), stride=(1, 3), dilation=(2, 1), padding=(3, 0)),
        torch.nn.AvgPool1d(3, 2, padding=1),
        torch.nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
        torch.nn.AvgPool3d(2),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.PReLU(4),
        torch.nn.InstanceNorm2d(4, affine=True),
        torch.nn.GroupNorm(2, 4),
        torch.nn.PixelShuffle(2),
    ],
    ids=lambda module: type(module).__name__,
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_of_windows(module: torch.nn.Module, dynamic: bool) -> None:
    """Convolution and pooling of float64, whose sizes may be dynamic."""
    rank = int(type(module).__name__[-2]) if type(module).__name__.endswith("d") else 2
    module = module.to(F64).eval()
    x = torch.randn(2, 4, *[9, 8, 7][:rank], dtype=F64)
    shapes = (dict.fromkeys((0, *range(2, 2 + rank)), torch.export.Dim.AUTO),) if dynamic else None
    program = fx_onnx.export(module, (x,), dynamic_shapes=shapes, verbose=False)
    for each in [x, torch.randn(3, 4, *[10, 11, 6][:rank], dtype=F64)][: 1 + dynamic]:
        torch.testing.assert_close(program(each)[0], module(each))


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        ("nearest", {}),
        ("nearest-exact", {}),
        *((mode, {option: True} if option else {}) for mode in ("bilinear", "bicubic") for option in OPTIONS),
    ],
)
@pytest.mark.parametrize("how", [{"size": (7, 12)}, {"scale_factor": (1.7, 0.6)}, {"size": (3, 6)}])
def test_resize(mode: str, more: dict[str, bool], how: dict[str, Any]) -> None:
    """Axes that grow, shrink and stay."""

    class Resized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(x, mode=mode, **how, **more)

    x = torch.randn(2, 3, 5, 6, dtype=F64)
    program = fx_onnx.export(Resized().eval(), (x,), verbose=False)
    assert "Resize" not in {node.op_type for node in program.model.graph}
    torch.testing.assert_close(program(x)[0], Resized()(x), rtol=1e-12, atol=1e-13)


def test_relu_of_integers() -> None:
    """Max with 0."""
    program = model("g (int64[N] x) => (int64[N] y) { y = Relu(x) }")
    LegalizeWideTypes()(program)
    assert [node.op_type for node in program.graph] == ["Max"]
    assert run(program, [torch.tensor([-3, 2**62])])[0].tolist() == [0, 2**62]


def test_float32_stays() -> None:
    """What has a kernel is not touched."""
    for op_type in set(FORMS) & {"Erf", "Gelu", "Softplus", "Relu"}:
        program = model(f"g (float[N] x) => (float[N] y) {{ y = {op_type}(x) }}")
        assert not LegalizeWideTypes()(program).modified


@pytest.mark.parametrize("block", ["blocksize=2", 'blocksize=2, mode="CRD"'])
def test_blocks_of_integers(block: str) -> None:
    """DepthToSpace and SpaceToDepth of int64, against those of float64, which have kernels."""
    text = """g ({0}[N,8,2,3] x) => ({0}[N,2,4,6] y, {0}[N,8,2,3] z) {{
      y = DepthToSpace<{1}>(x)\n z = SpaceToDepth<blocksize=2>(y) }}"""
    x = torch.arange(96).reshape(2, 8, 2, 3)
    want = run(model(text.format("double", block)), [x.double()])
    program = model(text.format("int64", block))
    LegalizeWideTypes()(program)
    for got, expected in zip(run(program, [x]), want, strict=True):
        assert got.equal(expected.long())


def test_nonzero() -> None:
    """By way of booleans."""
    program = model("g (double[N] x) => (int64[1,M] y) { y = NonZero(x) }")
    LegalizeWideTypes()(program)
    assert [node.op_type for node in program.graph] == ["Cast", "NonZero"]
    x = torch.tensor([0.0, -0.0, 1e-300, float("nan")], dtype=F64)
    assert run(program, [x])[0].tolist() == [[2, 3]]


def test_convolution_of_integers() -> None:
    """torch convolves int64, ONNX does not: the emitter casts to float64, which the pass must see through."""

    class Convolved(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return F.conv2d(x, weight, padding=1)

    x, weight = torch.arange(48).reshape(1, 3, 4, 4), torch.arange(54).reshape(2, 3, 3, 3)
    program = fx_onnx.export(Convolved().eval(), (x, weight), verbose=False)
    assert program(x, weight)[0].equal(Convolved()(x, weight))
