"""Packing of weights into 4 bits."""

import logging

import onnx_ir as ir
import pytest
import torch

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.core.weights import as_torch
from fx_onnx.passes.cleanup.dead_code import EliminateDeadCode
from fx_onnx.passes.rewriter import LOGGER_NAME
from fx_onnx.passes.weights.packed_weights import PackWeights
from tests.passes.checking import check, model

TEXT = """g (float[N,6] x) => (float[N,3] y) {
  q = Cast<to=22>(w)
  d = DequantizeLinear<axis=1, block_size=2>(q, s)
  t = Transpose<perm=[1,0]>(d)
  y = MatMul(x, t)
}"""
OPERATORS = ["DequantizeLinear", "Transpose", "MatMul"]


def test_packed_when_saved() -> None:
    """A 4-bit weight takes half the bytes of an 8-bit one and has the same values."""
    weight = torch.randint(-8, 8, (3, 6), dtype=torch.int8)
    program = model(TEXT, {"w": weight, "s": torch.rand(3, 3)}, opset=21)
    check(program, PackWeights(), [torch.randn(2, 6)], OPERATORS)
    EliminateDeadCode()(program)
    packed = program.graph.initializers["w_packed"].const_value
    assert packed is not None and (packed.dtype, packed.nbytes) == (ir.DataType.INT4, 9)
    assert torch.equal(as_torch(packed), weight)
    assert "w" not in program.graph.initializers


def test_unsigned() -> None:
    text = TEXT.replace("to=22", "to=21")
    program = model(text, {"w": torch.randint(0, 16, (3, 6), dtype=torch.uint8), "s": torch.rand(3, 3)}, opset=21)
    check(program, PackWeights(), [torch.randn(2, 6)], OPERATORS)
    assert program.graph.initializers["w_packed"].dtype == ir.DataType.UINT4


def test_saving_a_value_out_of_range_fails() -> None:
    program = model(TEXT, {"w": torch.full((3, 6), 9, dtype=torch.int8), "s": torch.rand(3, 3)}, opset=21)
    PackWeights()(program)
    packed = program.graph.initializers["w_packed"].const_value
    assert packed is not None
    with pytest.raises(OnnxExporterError, match="'w_packed' has values outside"):
        packed.tobytes()


def test_casts_of_other_values_stay() -> None:
    text = "g (int8[N] x) => (float[N] y) { q = Cast<to=22>(x)\n y = DequantizeLinear(q, s) }"
    program = model(text, {"s": torch.tensor(0.5)}, opset=21)
    check(program, PackWeights(), [torch.tensor([1, -8], dtype=torch.int8)], ["Cast", "DequantizeLinear"])


def test_a_weight_that_the_graph_returns_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An initializer is not an output of the graph, so the Cast stays."""
    program = model("g (float[N] x) => (int4[3] y) { y = Cast<to=22>(w) }", {"w": torch.ones(3).to(torch.int8)}, 21)
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        assert not PackWeights()(program).modified
    assert "pack_weights declines Cast y: the graph returns its result" in caplog.text
