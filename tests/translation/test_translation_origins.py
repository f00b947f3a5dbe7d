"""Which functions translated the nodes of a program."""

from __future__ import annotations

import operator

import torch

import fx_onnx
from fx_onnx.translation.translation_origins import operator_text

aten = torch.ops.aten


def test_operators_as_text() -> None:
    texts = [operator_text(each) for each in (aten.gelu.default, aten.add.Tensor, operator.add, "a::b")]
    assert texts == ["aten.gelu", "aten.add.Tensor", "add", "a::b"]


def test_functions_of_the_user_are_named() -> None:
    def relu(op, self):  # type: ignore[no-untyped-def]
        return op.Relu(self)

    program = fx_onnx.export(torch.nn.ReLU(), (torch.randn(2),), custom_translation_table={aten.relu.default: relu})
    origins = program._origins
    assert origins is not None
    assert "relu" in origins.custom_texts("relu")
    assert origins.custom_texts("other") == ""
