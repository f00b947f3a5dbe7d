"""The decorator that adds rows, and what a row does where it declines."""

import logging
from collections.abc import Iterator

import pytest
import torch
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import TABLE, Legalization, legalizes
from fx_onnx.passes.rewriter import LOGGER_NAME
from fx_onnx.passes.rules import DeclinedError, Result
from tests.passes.checking import check, model

TEXT = "g (float[N] x) => (float[N] y) { y = Neg(x) }"


def minus(f: NodeBuilder, x: Value) -> Result:
    return f.Sub(0.0, x) if x.dtype == DataType.FLOAT else "it is too wide"


@pytest.fixture(autouse=True)
def rows() -> Iterator[None]:
    """Takes the rows of a test out of the table again."""
    before = len(TABLE)
    yield
    del TABLE[before:]


def test_each_decorator_adds_a_row() -> None:
    both = legalizes("Neg(x)", targets=("mnn",))(legalizes("Neg(x)", until=9)(minus))
    first, second = TABLE[-2:]
    assert (first.is_of_opset, first.until, second.is_of_opset, second.targets) == (True, 9, False, ("mnn",))
    assert both is second
    check(model(TEXT), both, [torch.randn(3)], ["Sub"])


@pytest.mark.parametrize("raises", [False, True])
def test_a_reason_is_logged_for_a_target_and_an_error_for_an_opset(
    raises: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def declining(f: NodeBuilder, x: Value) -> Result:
        f.Abs(x)
        if raises:
            raise DeclinedError("it is too wide")
        return "it is too wide"

    def row(**options: object) -> Legalization:
        return legalizes("Neg(x)", **options)(declining)  # type: ignore[arg-type]

    program = model(TEXT)
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        assert not row(targets=("mnn",))(program).modified
    assert "declining declines Neg y: it is too wide" in caplog.text
    assert [use.node.op_type for use in program.graph.inputs[0].uses()] == ["Neg"]
    with pytest.raises(Exception, match="it is too wide"):
        row(until=20)(program)
