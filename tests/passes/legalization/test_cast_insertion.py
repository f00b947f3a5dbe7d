"""Promotion by Casts where ONNX Runtime's CPU provider has no kernel."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F

import fx_onnx
from fx_onnx.onnx_model import metadata
from fx_onnx.passes.legalization.cast_insertion import InsertCasts
from fx_onnx.passes.rewriter import LOGGER_NAME
from tests.passes.checking import model, run

BF16 = torch.bfloat16


def promoted(text: str, operators: list[str], opset: int = 20) -> ir.Model:
    """Returns the model after the pass, and asserts that it is valid, has these operators, and keeps its metadata."""
    program = model(text, opset=opset)
    names = [value.name for value in (*program.graph.inputs, *program.graph.outputs)]
    InsertCasts()(program)
    onnx.checker.check_model(ir.serde.serialize_model(program), full_check=True)
    nodes = list(ir.traversal.RecursiveGraphIterator(program.graph))
    assert Counter(node.op_type for node in nodes) == Counter(operators), [node.op_type for node in nodes]
    assert all(node.metadata_props.get(metadata.FX_NODE) for node in nodes)
    assert [value.name for value in (*program.graph.inputs, *program.graph.outputs)] == names
    return program


def test_where_of_booleans() -> None:
    """Where computes in uint8. A second one reads the uint8 directly, without two Casts."""
    program = promoted(
        """g (bool[N] c, bool[N] x, bool[N] y) => (bool[N] b) { a = Where(c, x, y)\n b = Where(c, y, a) }""",
        ["Cast", "Cast", "Where", "Where", "Cast"],
    )
    c, x, y = (torch.tensor(bits, dtype=torch.bool) for bits in ([0, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1]))
    (got,) = run(program, [c, x, y])
    assert got.equal(torch.where(c, y, torch.where(c, x, y)))


def test_bfloat16_is_rounded_after_every_call() -> None:
    """The Cast to bfloat16 and back stays between two calls, so that the results are equal to torch's bit by bit."""

    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ((x * 1.7 + x) / 3).relu().maximum(x).exp()

    x = torch.linspace(-3, 3, 101).to(BF16)
    program = fx_onnx.export(Chain().eval(), (x,), verbose=False)
    assert program(x)[0].equal(Chain()(x))
    casts = [node for node in program.model.graph if node.op_type == "Cast"]
    assert len(casts) == 1 + 3 * 2 - 1 + 2  # x; two each for Mul, Add and Div; Relu and Max are exact; Exp


@pytest.mark.parametrize(
    ("call", "shapes", "autocast"),
    [
        (lambda x, y: F.linear(x, y, y[0]), [(3, 16, 32), (32, 32)], False),
        (lambda x, y: F.linear(x, y, y[0]), [(3, 16, 32), (32, 32)], True),
        (lambda x, y: torch.baddbmm(x[:, :1], x, y), [(3, 16, 32), (3, 32, 32)], True),
        (lambda x, y: torch.baddbmm(x[:, :1], x, y, beta=0.5, alpha=3), [(3, 16, 32), (3, 32, 32)], True),
        (lambda x, y: F.silu(x) + y, [(16, 32), (32,)], False),
        (lambda x, y: x.var(0) + y.std(1), [(16, 32), (32, 8)], False),
        (lambda x, y: torch.add(x, y, alpha=1.5), [(16, 32), (16, 32)], False),
    ],
    ids=["linear", "linear-autocast", "baddbmm-autocast", "factors-autocast", "silu", "var", "alpha"],
)
def test_bfloat16_is_rounded_once_in_a_call(call: Callable[..., Any], shapes: list[Any], autocast: bool) -> None:
    """The steps of one call compute in float32, as torch's kernels do, so that the results are equal bit by bit."""

    class Call(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                return call(x, y)

    torch.manual_seed(0)
    arguments = tuple(torch.randn(shape).to(torch.float32 if autocast else BF16) for shape in shapes)
    assert Call()(*arguments).dtype == BF16
    for optimize in (True, False):
        program = fx_onnx.export(Call(), arguments, verbose=False, optimize=optimize)
        assert program(*arguments)[0].equal(Call()(*arguments))


@pytest.mark.parametrize(("second", "casts"), [("%a", 3), ("%b", 5)], ids=["of one call", "of two calls"])
def test_calls_are_told_apart_by_their_fx_nodes(second: str, casts: int) -> None:
    """Only the steps of one call leave out the rounding between them."""
    program = model("g (bfloat16[N] x) => (bfloat16[N] b) { a = Mul(x, x)\n b = Add(a, x) }", opset=20)
    for node, text in zip(program.graph, ("%a", second), strict=True):
        node.metadata_props[metadata.FX_NODE] = text
    InsertCasts()(program)
    assert Counter(node.op_type for node in program.graph)["Cast"] == casts - 1


@pytest.mark.parametrize("optimize", [True, False])
def test_exported_models_load(optimize: bool) -> None:
    """Convolution, normalization, attention and masks in bfloat16, optimized or not."""
    torch.manual_seed(0)

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)
            self.conv = torch.nn.Conv1d(4, 4, 3, padding=1)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            y = self.linear(self.norm(self.conv(x)))
            return torch.nn.functional.scaled_dot_product_attention(y, y, y, attn_mask=mask)

    block, x, mask = Block().to(BF16).eval(), torch.randn(2, 4, 8).to(BF16), torch.ones(4, 4).tril() > 0
    program = fx_onnx.export(block, (x, mask), verbose=False, optimize=optimize)
    torch.testing.assert_close(program(x, mask)[0], block(x, mask), rtol=3e-2, atol=3e-2)


def test_small_integers() -> None:
    """uint8 is computed in wider integers, and an overflow wraps."""
    program = promoted(
        """g (uint8[N,4] x) => (uint8[N,1] s, uint8[N,4] t) {
          axes = Constant<value_ints=[1]>()\n s = ReduceSum<keepdims=1>(x, axes)\n t = Trilu(x)
        }""",
        ["Constant", "Cast", "ReduceSum", "Cast", "Trilu", "Cast"],
    )
    x = torch.tensor([[200, 100, 3, 4], [5, 6, 7, 8]], dtype=torch.uint8)
    total, triangle = run(program, [x])
    assert total.equal(x.sum(1, keepdim=True).to(torch.uint8))
    assert triangle.equal(x.triu())


def test_shifts_are_promoted_to_unsigned_integers() -> None:
    """A shift of uint16 is computed in uint32."""
    text = """g (uint16[N] x, uint16[N] y) => (uint16[N] z) { z = BitShift<direction="RIGHT">(x, y) }"""
    program = promoted(text, ["Cast", "Cast", "BitShift", "Cast"])
    assert {node.outputs[0].dtype for node in program.graph} == {ir.DataType.UINT32, ir.DataType.UINT16}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool"])
def test_scatters_that_reduce(dtype: str) -> None:
    """The kernels fail for these dtypes if they reduce; a scatter without reduction stays."""
    text = f"""g ({dtype}[N] x, int64[K] i, {dtype}[K] u) => ({dtype}[N] y, {dtype}[N] z) {{
      y = ScatterElements<axis=0, reduction="max">(x, i, u)\n z = ScatterElements<axis=0>(x, i, u) }}"""
    promoted(text, ["Cast", "Cast", "ScatterElements", "Cast", "ScatterElements"])


def test_a_dtype_that_the_operator_does_not_admit() -> None:
    """Conv admits bfloat16 from opset 22 on. Below it, the Casts make the model valid."""
    program = promoted_invalid("g (bfloat16[1,1,N] x, bfloat16[1,1,2] w) => (bfloat16[A,B,C] y) { y = Conv(x, w) }")
    assert [node.op_type for node in program.graph] == ["Cast", "Cast", "Conv", "Cast"]


def promoted_invalid(text: str) -> ir.Model:
    """Returns the model after the pass, and asserts that it is valid. The model before the pass is not."""
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]>\n{text}')
    program = ir.serde.deserialize_model(proto)
    InsertCasts()(program)
    onnx.checker.check_model(ir.serde.serialize_model(program), full_check=True)
    return program


def test_attributes_and_constants() -> None:
    """The attribute dtype is changed too, and a small constant is converted instead of cast."""
    text = """g (int16[2,2] x) => (int16[2,2] y) <int16[1] c = {3}> {
      e = EyeLike<dtype=5>(x)\n m = Max(e, c)\n y = Max(m, x) }"""
    program = promoted(text, ["Cast", "EyeLike", "Max", "Max", "Cast"])
    x = torch.tensor([[1, 5], [-7, 3000]], dtype=torch.int16)
    assert run(program, [x])[0].equal(x.clamp(min=3))


def test_subgraphs() -> None:
    """The Cast of an outer value is outside the branches, which share it."""
    program = promoted(
        """g (bool c, bool[N] x) => (bool[N] y) {
          y = If(c)<then_branch = t () => (bool[N] a) { a = Where(c, x, x) },
                    else_branch = e () => (bool[N] b) { b = Where(x, x, x) }>
        }""",
        ["Cast", "If", "Where", "Cast", "Where", "Cast"],
    )
    assert program.graph[0].op_type == "Cast"
    x = torch.tensor([True, False])
    assert run(program, [torch.tensor(True), x])[0].equal(x)


@pytest.mark.parametrize(
    ("dtype", "op_type"), [("float", "Softmax"), ("double", "Erf"), ("float16", "Softmax"), ("int64", "Neg")]
)
def test_unchanged(dtype: str, op_type: str) -> None:
    """float32 has kernels, 64 bits have no wider dtype, and the runtime casts float16 itself."""
    program = model(f"g ({dtype}[N] x) => ({dtype}[N] y) {{ y = {op_type}(x) }}")
    before = ir.serde.serialize_model(program).SerializeToString()
    assert not InsertCasts()(program).modified
    assert ir.serde.serialize_model(program).SerializeToString() == before


def test_a_node_without_any_kernel_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Erf has a kernel for float32 only, and an int8 is not promoted to a float."""
    program = model("g (int8[N] x) => (int8[N] y) { y = Erf(x) }")
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        assert not InsertCasts()(program).modified
    assert [record.getMessage() for record in caplog.records if record.name == LOGGER_NAME] == [
        "insert_casts declines Erf y: no provider has a kernel for its dtypes or wider ones"
    ]


def test_8_bit_floats_are_promoted_to_float32() -> None:
    """ONNX's Transpose admits them from opset 21 on, its Concat never."""
    text = """g (float[2,3] x, float[2,3] z) => (float[6,2] y) {
      a = Cast<to=17>(x)\n b = Cast<to=17>(z)\n c = Concat<axis=1>(a, b)\n t = Transpose<perm=[1,0]>(c)
      y = Cast<to=1>(t)
    }"""
    x, z = torch.randn(2, 3), torch.randn(2, 3)
    (got,) = run(promoted(text, ["Cast"] * 6 + ["Concat", "Transpose"]), [x, z])
    assert got.equal(torch.cat([x, z], 1).t().to(torch.float8_e4m3fn).float())


PARTS = torch.randn(3, 4), torch.randn(3, 4)


def joined(text: str, operators: list[str]) -> None:
    """Asserts the operators, and that the results are torch's concatenation of x * z and x - z bit by bit."""
    before = "x = Cast<to=16>(p)\n z = Cast<to=16>(q)\n a = Mul(x, z)\n b = Sub(x, z)\n"
    program = promoted(f"g (float[N,4] p, float[N,4] q) => {text.format(before)}", ["Cast"] * 4 + operators)
    x, z = (part.to(BF16) for part in PARTS)
    assert run(program, PARTS)[0].equal(torch.cat([x * z, x - z]).float())


def test_a_concat_joins_before_it_rounds() -> None:
    """One Cast rounds all results and the zeros, with the same numbers as one Cast for each."""
    joined(
        """(float[M,4] y) <int64[2] s = {{0, 4}}> {{
          {} c = ConstantOfShape<value = bfloat16[1] {{0}}>(s)\n d = Concat<axis=0>(a, b, c)\n y = Cast<to=1>(d) }}""",
        ["Mul", "Sub", "ConstantOfShape", "Concat", "Cast", "Cast"],
    )


def test_a_result_that_is_read_twice_is_rounded_before_the_concat() -> None:
    """A Transpose, which has a kernel, and a graph output read the narrow result."""
    joined(
        """(float[M,4] y, float[4,N] t) {{
          {} d = Concat<axis=0>(a, b)\n y = Cast<to=1>(d)\n u = Transpose<perm=[1,0]>(a)\n t = Cast<to=1>(u) }}""",
        ["Mul", "Sub", "Cast", "Cast", "Concat", "Transpose", "Cast", "Cast"],
    )


@pytest.mark.parametrize(("axis", "casts"), [(0, 4), (1, 6)], ids=["of promoted nodes", "also read in bfloat16"])
def test_a_split_for_promoted_nodes(axis: int, casts: int) -> None:
    """One Cast of the whole replaces one for each part, if no part is read in bfloat16."""
    other = "t = Cast<to=1>(b)" if axis else "t = Identity(y)"
    text = f"""g (float[4,4] p) => (float[N,M] y, float[N,M] t) <int64[2] n = {{2, 2}}> {{
      x = Cast<to=16>(p)\n a, b = Split<axis={axis}>(x, n)\n m = Mul(a, b)\n y = Cast<to=1>(m)\n {other} }}"""
    program = promoted(text, ["Split", "Mul"] + ["Cast"] * casts + ["Identity"] * (1 - axis))
    split = next(node for node in program.graph if node.op_type == "Split")
    assert split.outputs[1].dtype is (ir.DataType.BFLOAT16 if axis else ir.DataType.FLOAT)
    x = torch.arange(16.0).reshape(4, 4)
    first, second = x.to(BF16).split(2, axis)
    assert run(program, [x])[0].equal((first * second).float())
