"""The functions around export: text, modes, operators that cannot be exported, and registrations."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.compat import utils

X = torch.randn(2, 3)


@torch.library.custom_op("fx_onnx_tests::mystery", mutates_args=())
def mystery(x: Tensor) -> Tensor:
    return x.clone()


@mystery.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Mysterious(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return mystery(x).relu() + torch.special.bessel_j0(x)


def test_the_text_is_onnx_text() -> None:
    text = utils.export_to_pretty_string(nn.Linear(3, 64), (X,), input_names=["x"], opset_version=18)
    assert '["" : 18]' in text or '"": 18' in text or '"" : 18' in text
    assert "Gemm" in text
    assert "float[64,3]" in text
    protobuf = utils.export_to_pretty_string(nn.ReLU(), (X,), google_printer=True)
    assert 'op_type: "Relu"' in protobuf
    unnamed = utils.export_to_pretty_string(nn.ReLU(), (X,), google_printer=True, add_node_names=False)
    assert 'name: "relu"\n  op_type' in protobuf.replace("    ", "  ") or protobuf.count("name:") > unnamed.count(
        "name:"
    )
    assert onnx.parser.parse_model(utils.export_to_pretty_string(nn.ReLU(), (X,))).graph.node[0].op_type == "Relu"


def test_the_text_is_of_the_mode_and_refuses_files() -> None:
    module = nn.Dropout(0.5).train()
    assert "Dropout" not in utils.export_to_pretty_string(module, (X,))
    assert module.training
    with pytest.raises(fx_onnx.ArgumentError, match="must be left out, because no file is written"):
        utils.export_to_pretty_string(module, (X,), keep_initializers_as_inputs=True)


@pytest.mark.parametrize(("mode", "expected"), [("EVAL", [False] * 3), ("TRAINING", [True] * 3), ("PRESERVE", None)])
def test_modes_are_put_back(mode: str, expected: list[bool] | None) -> None:
    module = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3))
    module[1].eval()
    before = [each.training for each in module.modules()]
    with utils.select_model_mode_for_export(module, fx_onnx.TrainingMode[mode]):
        assert [each.training for each in module.modules()] == (expected or before)
    assert [each.training for each in module.modules()] == before == [True, True, False]


def test_a_mode_of_torch_is_accepted_and_none_is_not() -> None:
    module = nn.Dropout().train()
    with utils.select_model_mode_for_export(module, torch.onnx.TrainingMode.EVAL):
        assert not module.training
    with (
        pytest.raises(fx_onnx.ArgumentError, match="mode must be a TrainingMode"),
        utils.select_model_mode_for_export(module, None),  # type: ignore[arg-type]
    ):
        pass


def test_unconvertible_ops() -> None:
    graph, names = utils.unconvertible_ops(Mysterious(), (X,))
    assert names == ["fx_onnx_tests::mystery"]
    assert any(node.target is torch.ops.aten.relu.default for node in graph.nodes)
    utils.register_custom_op_symbolic("fx_onnx_tests::mystery", lambda g, x: g.op("Identity", x), 9)
    try:
        assert utils.unconvertible_ops(Mysterious(), (X,))[1] == []
    finally:
        utils.unregister_custom_op_symbolic("fx_onnx_tests::mystery", 9)


def test_an_error_lists_the_operators() -> None:
    with pytest.raises(fx_onnx.UnsupportedOperatorError) as caught:
        fx_onnx.export(Mysterious().eval(), (X,))
    assert caught.value.operators == ("fx_onnx_tests.mystery.default",)


def test_an_exported_program_is_accepted() -> None:
    exported = torch.export.export(nn.ReLU().eval(), (X,))
    assert utils.unconvertible_ops(exported, ())[1] == []
    assert "Relu" in utils.export_to_pretty_string(exported, ())
    with utils.select_model_mode_for_export(exported, fx_onnx.TrainingMode.EVAL):  # type: ignore[arg-type]
        pass


def test_the_functions_are_those_of_the_package() -> None:
    names: list[Any] = [name for name in utils.__all__ if hasattr(fx_onnx, name)]
    assert len(names) == 7
    assert [name for name in names if getattr(fx_onnx, name) is not getattr(utils, name)] == []
    assert utils.export is fx_onnx.export
