"""Products with 4-bit and 8-bit weights whose zeros are floats, or that have offsets."""

import onnx_ir as ir
import pytest
import torch
from torch import Tensor

import fx_onnx
from fx_onnx.passes.cleanup.stored_weights import pack_weights
from fx_onnx.quantized_weights.affine_products import split_affine_weights
from tests.compare import assert_close
from tests.models import packed_checkpoints as layers
from tests.passes.checking import model, run

ROWS, GROUPS, GROUP = 6, 4, 32
X = torch.randn(2, 3, GROUPS * GROUP)
SPLIT = ["Add", "DequantizeLinear", "MatMul", "MatMul", "ReduceSum", "Reshape"]


def affine(
    steps: str, *, scale: Tensor, other: Tensor, kind: int = 21, limit: int = 16, product: str = "MatMul"
) -> ir.Model:
    """Returns a product with a weight (6, 128) in groups of 32, which these steps dequantize."""
    offset = 0 if kind in (2, 21) else limit // 2  # UINT8 and UINT4 are 2 and 21
    codes = torch.randint(0, limit, (ROWS, GROUPS * GROUP)) - offset
    weights = {"c": codes.to(torch.int8 if offset else torch.uint8), "s": scale, "z": other}
    turned = "t = Transpose<perm=[1, 0]>(d)\n y = MatMul(x, t)" if product == "MatMul" else "y = Gemm<transB=1>(x, d)"
    packing, codes = (f"c4 = Cast<to={kind}>(c)\n", "c4") if limit == 16 else ("", "c")
    x = "N,L" if product == "MatMul" else "N"
    text = f"""g (float[{x},128] x) => (float[{x},6] y) <int64[3] g = {{6, 4, 32}}, int64[2] f = {{6, 128}}> {{
      {packing} n = Cast<to=1>({codes})\n r = Reshape(n, g)\n {steps}\n d = Reshape(v, f)\n {turned} }}"""
    program = model(text, weights, opset=23)
    pack_weights(program)
    return program


ZEROS, OFFSETS = "u = Sub(r, z)\n v = Mul(u, s)", "u = Mul(r, s)\n v = Add(u, z)"
SCALE, ZERO = torch.rand(ROWS, GROUPS, 1) + 0.1, torch.rand(ROWS, GROUPS, 1) * 20 - 4  # also zeros out of the range


@pytest.mark.parametrize("product", ["MatMul", "Gemm"])
@pytest.mark.parametrize(("kind", "limit"), [(21, 16), (22, 16), (2, 256), (3, 256)])
@pytest.mark.parametrize("steps", [ZEROS, OFFSETS])
def test_split(steps: str, kind: int, limit: int, product: str) -> None:
    program = affine(steps, scale=SCALE, other=ZERO, kind=kind, limit=limit, product=product)
    inputs = [X if product == "MatMul" else X[0]]
    before = run(program, inputs)[0]
    assert split_affine_weights(program).modified
    assert sorted(node.op_type for node in program.graph) == SPLIT
    assert_close(run(program, inputs)[0], before, 1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-42, 1e-30])
def test_offsets_that_are_far_from_the_scales(scale: float) -> None:
    program = affine(OFFSETS, scale=torch.full_like(SCALE, scale), other=ZERO)
    before = run(program, [X])[0]
    assert split_affine_weights(program).modified
    assert_close(run(program, [X])[0], before, 1e-5)


def test_a_scale_that_is_no_number() -> None:
    scale = SCALE.clone()
    scale[2, 1] = torch.nan
    for steps in (ZEROS, OFFSETS):
        program = affine(steps, scale=scale, other=ZERO)
        assert split_affine_weights(program).modified
        assert run(program, [X])[0].isnan().all((0, 1)).tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("scale", "zero"),
    [(SCALE[:1], ZERO), (SCALE, ZERO[:, :1]), (torch.rand(ROWS, GROUPS, GROUP), ZERO), (torch.rand(GROUP), ZERO)],
)
def test_other_parameters_are_declined(scale: Tensor, zero: Tensor) -> None:
    """Tests scales for all rows, zeros for all groups, and a scale for each element and for each column."""
    assert not split_affine_weights(affine(ZEROS, scale=scale, other=zero)).modified


@pytest.mark.parametrize(
    ("layer", "is_split"),
    [
        *((layers.hqq(bits, group, axis), axis == 1) for bits in (8, 4, 3) for group in (16, 64) for axis in (0, 1)),
        (layers.hqq(4, 128, 1), False),  # a group is two rows
        (layers.quanto("4 float"), True),
    ],
)
def test_layers(layer: layers.Layer, is_split: bool) -> None:
    for x in (X[..., :64], X[0, :, :64]):
        dims = ({0: "batch"},)
        options = {"opset_version": 21, "dynamic_shapes": dims, "verbose": False}
        program = fx_onnx.export(torch.nn.Sequential(layer), (x,), target="onnxruntime", **options)
        assert_close(program(x)[0], torch.nn.functional.linear(x, layer.expected), 1e-5)
        assert ("MatMulNBits" in {node.op_type for node in program.model.graph}) == is_split
