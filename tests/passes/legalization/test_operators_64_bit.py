"""Operators of float64 and int64 without a CPU kernel: their expansions give torch's numbers."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import fx_onnx
from fx_onnx.passes.legalization.operators_64_bit import EXPANSIONS, Legalize64Bit
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


@pytest.mark.parametrize(
    "module",
    [torch.nn.PReLU(4), torch.nn.InstanceNorm2d(4, affine=True), torch.nn.GroupNorm(2, 4), torch.nn.PixelShuffle(2)],
    ids=lambda module: type(module).__name__,
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_modules(module: torch.nn.Module, dynamic: bool) -> None:
    """Modules of float64 give torch's numbers, also with dynamic sizes."""
    module, x = module.to(F64).eval(), torch.randn(2, 4, 9, 8, dtype=F64)
    shapes = (dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO),) if dynamic else None
    program = fx_onnx.export(module, (x,), dynamic_shapes=shapes, verbose=False)
    for each in [x, torch.randn(3, 4, 10, 11, dtype=F64)][: 1 + dynamic]:
        torch.testing.assert_close(program(each)[0], module(each))


def test_relu_of_integers() -> None:
    """Relu of int64 becomes Max with 0, exact for large numbers."""
    program = model("g (int64[N] x) => (int64[N] y) { y = Relu(x) }")
    Legalize64Bit()(program)
    assert [node.op_type for node in program.graph] == ["Max"]
    assert run(program, [torch.tensor([-3, 2**62])])[0].tolist() == [0, 2**62]


def test_float32_stays() -> None:
    """An operator of float32 has a kernel and stays."""
    for op_type in set(EXPANSIONS) & {"Erf", "Gelu", "Softplus", "Relu"}:
        program = model(f"g (float[N] x) => (float[N] y) {{ y = {op_type}(x) }}")
        assert not Legalize64Bit()(program).modified


@pytest.mark.parametrize("block", ["blocksize=2", 'blocksize=2, mode="CRD"'])
def test_blocks_of_integers(block: str) -> None:
    """DepthToSpace and SpaceToDepth of int64 agree with those of float64, which have kernels."""
    text = """g ({0}[N,8,2,3] x) => ({0}[N,2,4,6] y, {0}[N,8,2,3] z) {{
      y = DepthToSpace<{1}>(x)\n z = SpaceToDepth<blocksize=2>(y) }}"""
    x = torch.arange(96).reshape(2, 8, 2, 3)
    want = run(model(text.format("double", block)), [x.double()])
    program = model(text.format("int64", block))
    Legalize64Bit()(program)
    for got, expected in zip(run(program, [x]), want, strict=True):
        assert got.equal(expected.long())


def test_nonzero() -> None:
    """NonZero of float64 becomes NonZero of booleans, so that NaN and denormals count as nonzero."""
    program = model("g (double[N] x) => (int64[1,M] y) { y = NonZero(x) }")
    Legalize64Bit()(program)
    assert [node.op_type for node in program.graph] == ["Cast", "NonZero"]
    x = torch.tensor([0.0, -0.0, 1e-300, float("nan")], dtype=F64)
    assert run(program, [x])[0].tolist() == [[2, 3]]
