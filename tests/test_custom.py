"""custom_translation_table: functions of our shape, onnxscript functions, functions written for torch.onnx."""

from collections.abc import Callable
from typing import Any

import onnxscript
import pytest
import torch
from onnxscript import opset18
from torch import Tensor, nn

import fx_onnx
from fx_onnx import ArgumentError, UnsupportedOperatorError
from fx_onnx.emitter import Emitter
from tests.compare import assert_close


@torch.library.custom_op("fx_onnx_tests::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor


@scaled.register_fake
def _(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


SCALED = torch.ops.fx_onnx_tests.scaled


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return SCALED(x + 1, 3.0).relu()


X = torch.randn(2, 3)


def project_shape(op: Emitter, x: Any, factor: float) -> Any:
    return op.Mul(x, factor)


def first_parameter_named_op(op, x, factor):  # type: ignore[no-untyped-def]
    return op.Mul(x, factor)


@onnxscript.script(onnxscript.values.Opset("tests.domain", 1))
def script(x, factor: float):  # type: ignore[no-untyped-def]
    return opset18.Mul(x, opset18.Constant(value_float=factor))


def for_torch_onnx(x, factor):  # type: ignore[no-untyped-def]
    return opset18.Mul(x, factor)


@pytest.mark.parametrize("function", [project_shape, first_parameter_named_op, script, for_torch_onnx])
@pytest.mark.parametrize("key", [SCALED.default, SCALED])
def test_each_kind(key: Any, function: Callable[..., Any]) -> None:
    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table={key: function})
    assert_close(program(X), Net()(X))


def test_a_script_becomes_a_local_function() -> None:
    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: script})
    assert [function.name for function in program.model.functions.values()] == ["script"]
    assert program.model.graph.opset_imports["tests.domain"] == 1


def test_any_domain() -> None:
    def elsewhere(op: Emitter, x: Any, factor: float) -> Any:
        return op.emit("Scaled", x, domain="com.example", factor=factor)

    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: elsewhere})
    (node,) = [node for node in program.model.graph if node.domain == "com.example"]
    assert (node.op_type, node.attributes["factor"].as_float()) == ("Scaled", 3.0)
    assert program.model.graph.opset_imports["com.example"] == 1


def test_a_users_translation_goes_before_ours() -> None:
    def negative(op: Emitter, self: Any) -> Any:
        return op.Neg(self)

    table = {torch.ops.aten.relu.default: negative, SCALED: project_shape}
    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table=table)
    assert_close(program(X)[0], -(X + 1) * 3)


def test_without_a_translation_the_operator_is_named() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"fx_onnx_tests.scaled.default: 1 call, first at .*test_custom"):
        fx_onnx.export(Net().eval(), (X,))


@pytest.mark.parametrize("table", [{SCALED.default: "Mul"}, {"aten::relu": project_shape}])
def test_bad_tables(table: Any) -> None:
    with pytest.raises(ArgumentError, match="custom_translation_table"):
        fx_onnx.export(Net().eval(), (X,), custom_translation_table=table)
