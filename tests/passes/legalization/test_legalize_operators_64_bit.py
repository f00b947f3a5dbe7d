"""Operators of float64 and int64 without a CPU kernel: their expansions give torch's numbers."""

import pytest
import torch

import fx_onnx
from fx_onnx.passes.legalization.legalize import Legalize64Bit
from tests.passes.checking import model, run

F64 = torch.float64


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
    for op_type in ("Erf", "Gelu", "Softplus", "Relu"):
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
