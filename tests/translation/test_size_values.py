"""The emitted nodes compute the same numbers from symbolic sizes as Python does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch.export import Dim

from fx_onnx.sizes import symbolic_sizes
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.size_values import SymbolTable


class _Sizes(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        a, b = x.shape
        return x + 1, self.function(a, b)


def _captured(function: Callable[..., Any]) -> tuple[torch.Tensor, Any]:
    """Returns the fake input, and the symbolic number that ``function`` returns for its two sizes."""
    shapes = ({0: Dim("a", min=2, max=500), 1: Dim("b", min=2, max=500)},)
    program = torch.export.export(_Sizes(function), (torch.randn(7, 5),), dynamic_shapes=shapes)
    (placeholder,) = program.graph.find_nodes(op="placeholder")
    (output,) = program.graph.find_nodes(op="output")
    node = output.args[0][1]
    return placeholder.meta["val"], node.meta["val"] if isinstance(node, torch.fx.Node) else node


def _emitter(fake: torch.Tensor) -> tuple[Emitter, ir.Value]:
    graph = ir.Graph((), (), nodes=(), opset_imports={"": 20}, name="g")
    op = Emitter(graph, 20, SymbolTable({}))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["a", "b"]))
    graph.inputs.append(x)
    op.symbols.define_sizes(x, tuple(fake.shape))
    return op, x


def _run(op: Emitter, result: ir.Value, sizes: Sequence[int]) -> Any:
    op.graph.outputs[:] = [result]
    model = ir.to_proto(ir.Model(op.graph, ir_version=9))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": torch.zeros(*sizes).numpy()})[0]


EXPRESSIONS = {
    "a": lambda a, b: a,
    "a+b": lambda a, b: a + b,
    "a-b": lambda a, b: a - b,
    "2*a-3": lambda a, b: 2 * a - 3,
    "a*b": lambda a, b: a * b,
    "a**2": lambda a, b: a**2,
    "a//2": lambda a, b: a // 2,
    "-(-a//3)": lambda a, b: -(-a // 3),
    "(a-b)//3": lambda a, b: (a - b) // 3,
    "(b-a)//3": lambda a, b: (b - a) // 3,
    "(a-8)//2": lambda a, b: (a - 8) // 2,
    "(a-9)//2": lambda a, b: (a - 9) // 2,
    "((a//3-9)//4-1)//2": lambda a, b: ((a // 3 - 9) // 4 - 1) // 2,
    "(a+b-9)//5": lambda a, b: (a + b - 9) // 5,
    "a%3": lambda a, b: a % 3,
    "(b-a)%4": lambda a, b: (b - a) % 4,
    "(b/2-a)%0.75": lambda a, b: (b * 0.5 - a) % 0.75,
    "(a//2)%3": lambda a, b: (a // 2) % 3,
    "(a*b)//(b+1)": lambda a, b: (a * b) // (b + 1),
    "max": lambda a, b: torch.sym_max(a, b),
    "min": lambda a, b: torch.sym_min(a, 2 * b),
    "a/b": lambda a, b: a / b,
    "int(a/2)": lambda a, b: torch.sym_int(a / 2),
    "int(-a/2)": lambda a, b: torch.sym_int(-a / 2),
    "floor": lambda a, b: math.floor(a / 3),
    "ceil": lambda a, b: math.ceil(a / 3),
    "ceil of negative": lambda a, b: math.ceil(-a / 3),
    "round": lambda a, b: round(a * 0.5),
    "resize": lambda a, b: math.floor(a * 1.5),
    "true division of a product": lambda a, b: (a * b) / 4,
    "float": lambda a, b: a * 0.5,
    "sqrt": lambda a, b: torch.sym_sqrt(a),
    "power of two": lambda a, b: 2 ** (a % 3),
    "pow": lambda a, b: a**3,
    "ite": lambda a, b: torch.sym_ite(a > b, a, b),
    "a<b": lambda a, b: torch.sym_not(a < b),
    "sum of three": lambda a, b: torch.sym_sum([a, b, 1]),
    "a&3|4": lambda a, b: a & 3 | 4,
    "-a>>1": lambda a, b: (-a >> 1) + (b << 2),
    "abs": lambda a, b: abs(a - 2 * b),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_results_equal_those_of_python(name: str) -> None:
    function = EXPRESSIONS[name]
    fake, number = _captured(function)
    op, _ = _emitter(fake)
    result = op.symbols.value(op, number, rank=0)
    for sizes in ((7, 5), (5, 7), (6, 4), (11, 3), (2, 9)):
        got = _run(op, result, sizes)
        want = function(*sizes)
        assert got.shape == ()
        assert got.dtype == {bool: np.bool_, int: np.int64, float: np.float64}[type(want)]
        assert float(got) == pytest.approx(float(want)), sizes


def test_a_symbol_is_read_once_and_an_expression_computed_once() -> None:
    fake, _ = _captured(lambda a, b: a)
    a, b = fake.shape
    op, _ = _emitter(fake)
    first = op.symbols.value(op, a * b)
    count = len(op.graph)
    assert op.symbols.value(op, a * b) is first
    op.symbols.value(op, a)
    assert len(op.graph) == count
    assert [node.op_type for node in op.graph].count("Shape") == 2


def test_rank_zero_and_one() -> None:
    fake, _ = _captured(lambda a, b: a)
    op, _ = _emitter(fake)
    assert _run(op, op.symbols.value(op, fake.shape[0], rank=1), (7, 5)).tolist() == [7]
    assert _run(op, op.symbols.value(op, fake.shape[0], rank=0), (7, 5)).tolist() == 7


def test_a_symbol_is_computed_from_a_linear_expression_of_it() -> None:
    """The only dim that contains the symbol s0 is 2*s0 + 1."""
    fake, _ = _captured(lambda a, b: a)
    a, b = fake.shape
    graph = ir.Graph((), (), nodes=(), opset_imports={"": 20}, name="g")
    op = Emitter(graph, 20, SymbolTable({}))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["p", "q"]))
    graph.inputs.append(x)
    op.symbols.define_sizes(x, (2 * a + 1, b))
    assert _run(op, op.symbols.value(op, a), (15, 5)).tolist() == [7]


def test_a_symbol_without_a_definition_is_named() -> None:
    fake, _ = _captured(lambda a, b: a)
    graph = ir.Graph((), (), nodes=(), opset_imports={"": 20}, name="g")
    op = Emitter(graph, 20, SymbolTable({}))
    with pytest.raises(LookupError, match=str(symbolic_sizes.expression(fake.shape[0]))):
        op.symbols.value(op, fake.shape[0])


def test_dims_have_the_users_names() -> None:
    fake, _ = _captured(lambda a, b: a)
    a, b = fake.shape
    table = SymbolTable({str(symbolic_sizes.expression(a)): "batch", str(symbolic_sizes.expression(b)): "sequence"})
    assert table.dim(3) == 3
    assert table.dim(a) == "batch"
    assert table.dim(2 * b) == "2*sequence"
    assert table.dim(a * 0 + 4) == 4


def test_a_name_for_a_whole_expression() -> None:
    fake, _ = _captured(lambda a, b: a)
    twice = 2 * fake.shape[0]
    assert SymbolTable({str(symbolic_sizes.expression(twice)): "even"}).dim(twice) == "even"


def test_a_subgraphs_table_reads_outer_symbols_and_keeps_its_own_values() -> None:
    fake, _ = _captured(lambda a, b: a)
    op, _ = _emitter(fake)
    outer = op.symbols.value(op, fake.shape[0])
    inner = SymbolTable(parent=op.symbols)
    assert inner.value(op, fake.shape[0]) is outer
    inner.value(op, fake.shape[0] + 1)
    count = len(op.graph)
    op.symbols.value(op, fake.shape[0] + 1)
    assert len(op.graph) > count, "a value computed in a body does not exist outside it"


def test_the_symbol_of_a_bodys_parameter_has_its_own_value() -> None:
    fake, _ = _captured(lambda a, b: a)
    op, _ = _emitter(fake)
    a, b = fake.shape
    outer, other = op.symbols.value(op, a + 1), op.symbols.value(op, b + 1)
    inner = SymbolTable(parent=op.symbols)
    inner.bind(a, lambda op: op.constant([7]))
    assert _run(op, inner.value(op, a + 1), (3, 4)).tolist() == [8]
    assert op.symbols.value(op, a + 1) is outer
    assert inner.value(op, b + 1) is other


def test_a_quotient_of_quotients_of_sizes_needs_no_sign_correction() -> None:
    fake, quotient = _captured(lambda a, b: a // (b // 2))
    op, _ = _emitter(fake)
    op.symbols.value(op, quotient)
    assert [node.op_type for node in op.graph] == ["Shape", "Shape", "Div", "Max", "Div"]  # no division by 0


def test_a_quotient_of_a_size_less_a_number_needs_no_comparison() -> None:
    """The length after a convolution: a truncated quotient of a number that is not negative, and a shift."""
    fake, quotient = _captured(lambda a, b: (a // 5 - 3) // 2)
    op, _ = _emitter(fake)
    op.symbols.value(op, quotient)
    assert [node.op_type for node in op.graph] == ["Shape", "Div", "Add", "Add", "Div", "Sub"]
