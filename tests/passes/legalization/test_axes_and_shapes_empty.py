"""Models for ONNX Runtime raise an error for empty tensors for which it would end the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import OnnxExporterError
from tests.compare import assert_close
from tests.exporting import Call


def _first(layer: nn.Module) -> nn.Module:
    function = Call(lambda x: layer(x)[0])
    function.layer = layer
    return function.eval()


def _cell() -> nn.Module:
    cell = nn.LSTMCell(8, 4)
    function = Call(lambda x: cell(x[0])[0])
    function.cell = cell
    return function


def _attention(x: Tensor) -> Tensor:
    heads = x.transpose(0, 1)
    return nn.functional.scaled_dot_product_attention(heads, heads, heads)


_MODULES: dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...], tuple[int, ...] | None]] = {
    "LSTM": (lambda: _first(nn.LSTM(8, 4, 2, batch_first=True)), 1, (0, 4), None),
    "LSTM of steps": (lambda: _first(nn.LSTM(8, 4, bidirectional=True)), 1, (4, 0), None),
    "LSTM in float16": (lambda: _first(nn.LSTM(8, 4).half()), 1, (4, 0), None),
    "GRU": (lambda: _first(nn.GRU(8, 4, batch_first=True)), 1, (0, 4), None),
    "GRU without steps": (lambda: _first(nn.GRU(8, 4)), 1, (0, 4), None),
    "LSTMCell": (_cell, 1, (3, 0), None),
    "unique": (lambda: Call(lambda x: x.round().unique(dim=1)), 1, (0, 4), None),
    "product": (lambda: Call(lambda x: x.permute(1, 2, 0) @ x.transpose(0, 1)), 1, (0, 4), (4, 0)),
    "attention": (lambda: Call(_attention), 1, (0, 4), (4, 0)),
    "instance norm": (lambda: Call(lambda x: nn.functional.instance_norm(x.relu().transpose(1, 2))), 1, (3, 0), (0, 4)),
    "group norm": (lambda: Call(lambda x: nn.functional.group_norm(x.relu().mT, 2)), 1, (3, 0), None),
    "linear": (lambda: Call(lambda x: x.permute(1, 0, 2) @ torch.ones(8, 4)), 0, (), (0, 4)),
}
"""A module of (3, 4, 8), the least number of Reshapes that may fail, sizes that are refused, and some that are not."""


@pytest.mark.parametrize("opset", [13, None])
@pytest.mark.parametrize("name", _MODULES)
def test_an_empty_tensor_is_an_error(name: str, opset: int | None) -> None:
    make, count, refused, taken = _MODULES[name]
    module, dtype = make(), torch.float16 if "float16" in name else torch.float32
    x = torch.randn(3, 4, 8, dtype=dtype)
    program = fx_onnx.export(module, (x,), dynamic_shapes=({0: "a", 1: "b"},), opset_version=opset)
    checks = [node for node in program.model.graph if node.op_type == "Reshape" and _may_fail(node)]
    assert len(checks) >= count
    for sizes in ((3, 4), (1, 2), *([taken] if taken else [])):
        given = torch.randn(*sizes, 8, dtype=dtype)
        assert_close(program(given), module(given))
    if refused:
        with pytest.raises(OnnxExporterError, match="cannot be reshaped"):
            program(torch.zeros(*refused, 8, dtype=dtype))


def _may_fail(node: Any) -> bool:
    shape = node.inputs[1].const_value
    return shape is not None and {0, -1} <= set(shape.numpy().tolist())


def test_an_attention_without_heads_is_an_error() -> None:
    def attention(x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)

    x = torch.randn(2, 3, 4, 8)
    program = fx_onnx.export(
        Call(attention), (x,), dynamic_shapes=({0: "batch", 1: "heads", 2: "length"},), opset_version=23
    )
    assert [node.op_type for node in program.model.graph] == ["Reshape", "Attention"]
    assert_close(program(x[:, :2]), attention(x[:, :2]))
    with pytest.raises(OnnxExporterError, match="cannot be reshaped"):
        program(x[:, :0])


@pytest.mark.parametrize("target", ["openvino", "reference"])
def test_other_runtimes_need_no_check(target: str) -> None:
    program = fx_onnx.export(_first(nn.LSTM(8, 4)), (torch.randn(3, 4, 8),), dynamic_shapes=({1: "b"},), target=target)
    assert "Reshape" not in program.summary().operators


def test_a_static_batch_needs_no_check() -> None:
    program = fx_onnx.export(_first(nn.LSTM(8, 4)), (torch.randn(3, 4, 8),), dynamic_shapes=({0: "steps"},))
    assert "Reshape" not in program.summary().operators
