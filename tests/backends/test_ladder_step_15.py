"""Opset 16 → 15: bfloat16."""

from fx_onnx.backends.ladder import OpsetStep
from tests.passes.checking import model


def test_bfloat16_is_computed_in_float32() -> None:
    """Where admits bfloat16 from opset 16 on."""
    program = model("g (bool[N] c, bfloat16[N] x) => (bfloat16[N] y) { y = Where(c, x, x) }", opset=16)
    OpsetStep(15)(program)
    assert [node.op_type for node in program.graph] == ["Cast", "Where", "Cast"]
