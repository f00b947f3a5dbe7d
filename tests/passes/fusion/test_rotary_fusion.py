"""Fusion of rotary embeddings."""

import pytest
import torch
from onnxscript.rewriter.ort_fusions.rotary_embedding import fuse_rotary_embedding as fuse_rotary_of_onnxscript
from torch import Tensor

import fx_onnx
from fx_onnx.passes.fusion.rotary_fusion import fuse_partial_rotary, fuse_rotary_embedding, fuse_split_rotary
from tests.compare import assert_close
from tests.passes.checking import check, model

HALVES = "b = Slice(x, four, end, last)\n a = Slice(x, zero, four, last)\n"
TURNED = "n = Neg(b)\n t = Concat<axis=-1>(n, a)\n"
SUM = "p = Mul(x, cos)\n q = Mul(t, sin)\n y = Add(p, q)"
CONSTANTS = "<int64[1] zero = {0}, int64[1] four = {4}, int64[1] end = {9223372036854775807}, int64[1] last = {3}>"
ANGLES = torch.arange(5.0).outer(torch.tensor([1.0, 0.5, 0.25, 0.1]))
X = torch.randn(2, 3, 5, 8)


@pytest.mark.parametrize("halves", [HALVES, "a, b = Split<axis=-1, num_outputs=2>(x)\n"])
def test_computed_tables(halves: str) -> None:
    """Tables of duplicated angles, shared by the batch or not; each half is computed once, from half of the angles."""
    for batch, more in ((1, ["Shape", "Concat", "Expand", "Expand"]), ("N", [])):
        tables = "d = Concat<axis=-1>(r, r)\n cos = Cos(d)\n sin = Sin(d)\n"
        program = model(f"""g (float[N,3,5,8] x, float[{batch},1,5,4] r) => (float[N,3,5,8] y) {CONSTANTS} {{
          {tables} {halves} {TURNED} {SUM}
        }}""", opset=23)  # fmt: skip
        angles = ANGLES.expand(2 if batch == "N" else 1, 1, 5, 4)
        operators = ["Cos", "Sin", "Squeeze", "Squeeze", "RotaryEmbedding", *more]
        operators += (
            ["Shape", "Concat"] if more else []
        )  # for the second table; common-subexpression elimination merges them
        check(program, fuse_rotary_embedding, [X, angles], operators)


class Rotary(torch.nn.Module):
    """Computes apply_rotary_pos_emb of transformers for two tensors."""

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        positions = torch.arange(x.shape[2])
        angles = positions[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.1])
        table = torch.cat([angles, angles], -1)[None, None]

        def rotated(y: Tensor) -> Tensor:
            return y * table.cos() + torch.cat([-y[..., 4:], y[..., :4]], -1) * table.sin()

        return rotated(x) + rotated(z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_from_torch(dtype: torch.dtype) -> None:
    """Constant tables become constant halves; with dynamic sizes the halves are computed once."""
    module, args = Rotary().eval(), (X, X.flip(0))
    program = fx_onnx.export(module, args, opset_version=23)
    assert [node.op_type for node in program.model.graph] == ["RotaryEmbedding", "RotaryEmbedding", "Add"]
    assert_close(program(*args), module(*args))
    dims = {0: "batch", 2: "length"}
    dynamic = fx_onnx.export(module, args, opset_version=23, dynamic_shapes=(dims, dims))
    operators = [node.op_type for node in dynamic.model.graph]
    assert (operators.count("RotaryEmbedding"), operators.count("Expand"), operators.count("Neg")) == (2, 2, 0)
    longer = tuple(torch.randn(3, 3, 7, 8) for _ in range(2))
    assert_close(dynamic(*longer), module(*longer))


@pytest.mark.parametrize("opset", [20, 22])
def test_fuser_of_onnxscript(opset: int) -> None:
    """Below opset 23, which has the operator, onnxscript's fuser finds the embeddings; transformers calls it."""
    dims = {0: "batch", 2: "length"}
    program = fx_onnx.export(Rotary().eval(), (X, X.flip(0)), opset_version=opset, dynamic_shapes=(dims, dims))
    assert fuse_rotary_of_onnxscript(program.model) == 2


PARTS = [
    "a = Slice(x, zero, four, last)\n b = Slice(x, four, end, last)",
    "a, b = Split<axis=3>(x, sizes)",
]


@pytest.mark.parametrize("parts", PARTS)
def test_part_of_a_head(parts: str) -> None:
    """The rest of each head passes through the RotaryEmbedding unchanged."""
    constants = CONSTANTS.replace(">", ", int64[2] sizes = {4,6}>")
    program = model(f"""g (float[N,3,5,10] x, float[N,5,2] c, float[N,5,2] s) => (float[N,3,5,10] y) {constants} {{
      {parts} r = RotaryEmbedding(a, c, s)\n y = Concat<axis=-1>(r, b)
    }}""", opset=23)  # fmt: skip
    args = [torch.randn(2, 3, 5, 10), torch.rand(2, 5, 2), torch.rand(2, 5, 2)]
    check(program, fuse_partial_rotary, args, ["RotaryEmbedding"])


@pytest.mark.parametrize("join", ["Concat<axis=-1>(b, r)", "Concat<axis=-1>(r, z)", "Concat<axis=2>(r, a)"])
def test_no_part_of_a_head(join: str) -> None:
    """Parts in another order, of two values, or along another axis."""
    program = model(f"""g (float[N,3,5,10] x, float[N,5,2] c, float[N,5,2] s, float[N,3,5,6] z) => (float[A,B,C,D] y)
      {CONSTANTS} {{ {PARTS[0]} r = RotaryEmbedding(a, c, s)\n y = {join} }}""", opset=23)  # fmt: skip
    assert not fuse_partial_rotary(program).modified


@pytest.mark.parametrize(
    "text",
    [
        f"cos = Cos(r)\n sin = Sin(r)\n {HALVES} {TURNED} {SUM}",
        f"d = Concat<axis=-1>(k, k)\n cos = Cos(d)\n sin = Sin(d)\n {HALVES} {TURNED} {SUM}",
        f"d = Concat<axis=-1>(h, h)\n cos = Cos(d)\n sin = Sin(d)\n {HALVES.replace('four', 'three')} {TURNED} {SUM}",
        f"d = Concat<axis=-1>(h, h)\n cos = Cos(d)\n sin = Sin(d)\n {HALVES} {TURNED.replace('n, a', 'n, b')} {SUM}",
        f"d = Concat<axis=-1>(h, h)\n cos = Cos(d)\n sin = Sin(d)\n {HALVES} {TURNED} {SUM}\n z = Add(q, n)",
    ],
)
def test_declined(text: str) -> None:
    """Unequal halves, a table for each head, parts that are not halves, one half twice, a second consumer."""
    constants = CONSTANTS.replace(">", ", int64[1] three = {3}>")
    program = model(f"""g (float[N,3,5,8] x, float[N,1,5,8] r, float[N,3,5,4] k, float[N,1,5,4] h) =>
      (float[N,3,5,8] y) {constants} {{ {text} }}""", opset=23)  # fmt: skip
    assert not fuse_rotary_embedding(program).modified


SPLIT = """a, b = Split<axis=-1, num_outputs=2>(x)\n p = Mul(a, cos)\n q = Mul(b, sin)\n low = Sub(p, q)
 r = Mul(b, cos)\n s = Mul(sin, a)\n high = Add(s, r)\n y = Concat<axis=-1>(low, high)"""


def test_split_halves() -> None:
    """The halves are rotated one by one, with tables of half of the size of a head."""
    for batch, more in ((1, ["Shape", "Concat", "Expand"] * 2), ("N", [])):
        program = model(
            f"g (float[N,3,5,8] x, float[{batch},1,5,4] r0) => (float[N,3,5,8] y) "
            f"{{ cos = Cos(r0)\n sin = Sin(r0)\n {SPLIT} }}",
            opset=23,
        )
        angles = ANGLES.expand(2 if batch == "N" else 1, 1, 5, 4)
        check(program, fuse_split_rotary, [X, angles], ["Cos", "Sin", "Squeeze", "Squeeze", "RotaryEmbedding", *more])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Mul(b, cos)", "Mul(a, cos)"),  # no rotation
        ("Sub(p, q)", "Sub(q, p)"),
        ("Concat<axis=-1>(low, high)", "Concat<axis=-1>(high, low)"),
        ("Mul(b, sin)", "Mul(b, cos)"),
        ("y = Concat", "z = Neg(low)\n y = Concat"),  # another node reads a part
    ],
)
def test_split_halves_declined(old: str, new: str) -> None:
    outputs = "float[N,3,5,8] y, float[N,3,5,4] z" if "z =" in new else "float[N,3,5,8] y"
    inputs = "float[N,3,5,8] x, float[N,1,5,4] cos, float[N,1,5,4] sin"
    assert not fuse_split_rotary(
        model(f"g ({inputs}) => ({outputs}) {{ {SPLIT.replace(old, new)} }}", opset=23)
    ).modified
    tables = "float[N,3,5,8] x, float[N,3,5,4] cos, float[N,1,5,4] sin"  # a table that depends on the head
    assert not fuse_split_rotary(model(f"g ({tables}) => (float[N,3,5,8] y) {{ {SPLIT} }}", opset=23)).modified
