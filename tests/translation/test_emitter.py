"""Graphs inside nodes: their inputs and outputs, their names, and the symbols they may read."""

from __future__ import annotations

import pytest
import torch
from onnx_ir import DataType

from tests.translation.emitters import constants, emitter, kinds, symbolic_sizes, value


@pytest.fixture(scope="module")
def sizes() -> tuple[torch.SymInt, torch.SymInt]:
    return symbolic_sizes()


def test_a_nested_graph_reads_outer_values_and_shares_constants_and_names() -> None:
    op = emitter()
    op.enter("loop", {"key": "text"}, ("fake",))
    x = value(op)
    inner = op.nested()
    assert (inner.root, inner.out, inner.opset) == (op, ("fake",), op.opset)
    result = inner.Add(x, 1.0)
    assert result.producer().graph is inner.graph
    assert result.producer().metadata_props["key"] == "text"
    assert inner.constant(1.0) is op.constant(1.0)
    assert constants(op) == [(DataType.FLOAT, 1.0)]
    assert kinds(op) == []
    assert result.name != op.Add(x, 1.0).name


def test_the_inputs_of_a_nested_graph(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    op = emitter()
    op.enter("loop", {}, ())
    carried = op.graph_input("carried", DataType.INT64, (sizes[0], 2))
    assert op.sizes(carried) == (sizes[0], 2)
    assert (carried.dtype, carried.shape[1]) == (DataType.INT64, 2)
    assert carried.name.startswith("loop.")
    assert op.graph_input("free", DataType.FLOAT).shape is None
    assert list(op.nested([carried]).graph.inputs) == [carried]


def test_outer_values_constants_and_repeated_outputs_get_an_identity() -> None:
    op = emitter()
    x = value(op)
    inner = op.nested()
    own = inner.Relu(x)
    graph = inner.finish([own, x, own, 2])
    assert [node.op_type for node in graph] == ["Relu", "Identity", "Identity", "Identity"]
    assert graph.outputs[0] is own
    assert [output.dtype for output in graph.outputs] == [DataType.FLOAT] * 3 + [DataType.INT64]


def test_a_body_has_its_own_symbols_and_the_fx_node_is_restored(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    op = emitter()
    value(op, DataType.FLOAT, *sizes)
    op.enter("outer", {"key": "outer"}, (1,))
    symbols = op.symbols
    with op.body_scope():
        op.enter("inner", {}, (2,))
        assert op.symbols is not symbols
        assert op.symbols.value(op, sizes[0]).name.startswith("inner.")
    assert op.symbols is symbols
    assert (op.names.scope, op.names.metadata, op.out) == ("outer", {"key": "outer"}, (1,))


def test_a_body_can_only_be_emitted_while_a_program_is_translated() -> None:
    op = emitter()
    with pytest.raises(LookupError, match="body f can only be emitted while"):
        op.inline("f", [])
    op.translate_body = lambda inner, body, operands: [inner.Relu(operands[0]), body]
    x = value(op)
    result, name = op.nested().inline("f", [x])
    assert result.producer().op_type == "Relu"
    assert name == "f"
