"""A pass of a room runs only on a model that has quantized weights."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from fx_onnx.passes.optimize import PASSES, optimize
from fx_onnx.passes.room_passes import QuantizedWeightPass
from tests.passes.checking import model

PLAIN = '<ir_version: 10, opset_import: ["": 20]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
SMALL = """<ir_version: 10, opset_import: ["": 20]> g (float[2, 3] x) => (float[2, 2] y)
<int8[3, 2] w = {1, 2, 3, 4, 5, 6}, float s = {0.5}> { c = Cast<to=1>(w) m = MatMul(x, c) y = Mul(s, m) }"""
PACKED = '<ir_version: 10, opset_import: ["": 20]> g (int32[2] x) => (int32[2] y) { y = BitwiseAnd(x, x) }'


@pytest.mark.parametrize(("text", "needs"), [(PLAIN, False), (SMALL, True), (PACKED, True)])
def test_the_room_is_needed_for_quantized_weights(text: str, needs: bool) -> None:
    (first, *_others) = [each for each in PASSES if isinstance(each, QuantizedWeightPass)]
    found = first.of(ir.from_onnx_text(text))
    assert (found is not None) == needs
    assert found is None or found.name == first.name


def test_the_pass_of_the_room_runs() -> None:
    weights = {"w": torch.randint(-9, 9, (3, 2), dtype=torch.int8), "s": torch.tensor([0.5])}
    text = "g (float[2,3] x) => (float[2,2] y) { c = Cast<to=1>(w)\n m = MatMul(x, c)\n y = Mul(s, m) }"
    found = optimize(model(text, weights))
    assert [node.op_type for node in found.graph] == ["DequantizeLinear", "MatMul"]
    result = QuantizedWeightPass("fuse_dequantize_linear")(ir.from_onnx_text(PLAIN))
    assert not result.modified
