"""Errors of ONNX Runtime name the operator, the translation that emitted it, and the line of the model's code."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fx_onnx
from fx_onnx import OnnxExporterError
from fx_onnx.program.session import explain_runtime_errors


def my_relu(op: Any, self: Any) -> Any:
    return op.emit("Relu", self, domain="my.domain")


def my_program(**options: Any) -> fx_onnx.ONNXProgram:
    table = {torch.ops.aten.relu.default: my_relu}
    return fx_onnx.export(torch.nn.ReLU(), (torch.ones(2),), custom_translation_table=table, **options)


BY_MY_RELU = (
    r"my.domain::Relu, which the translation my_relu \(\S*test_session_runtime_errors.py:\d+\) emits for aten.relu"
)


@pytest.mark.parametrize(
    "use", [lambda p: p(torch.ones(2)), lambda p: p.verify(), lambda p: p.compute_values(["relu"], (torch.ones(2),))]
)
def test_an_operator_of_another_domain(use: Any) -> None:
    with pytest.raises(OnnxExporterError, match=r"has no operator my\.domain::Relu") as error:
        use(my_program())
    assert error.value.id == "FX1406"


def test_it_names_the_translation() -> None:
    with pytest.raises(OnnxExporterError, match=BY_MY_RELU):
        my_program(verify=True)


def test_a_node_that_fails_has_its_line() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(-1, 4) + 1

    program = fx_onnx.export(Model(), (torch.ones(4, 2),), dynamic_shapes=({0: "n"},))
    line = Model.forward.__code__.co_firstlineno + 1
    with pytest.raises(
        OnnxExporterError, match=r"fails at the node '[\w.]+' \(Reshape\) of aten.reshape \(.*: The input"
    ) as error:
        program(torch.ones(3, 2))
    assert error.value.place.endswith(f"test_session_runtime_errors.py:{line}")


def test_a_model_that_is_not_loaded() -> None:
    program = fx_onnx.export(torch.nn.ReLU(), (torch.ones(2),))
    program.model.graph.opset_imports[""] = 99
    with pytest.raises(OnnxExporterError, match=r"ONNX Runtime does not run the model: .*99"):
        program(torch.ones(2))


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), explain_runtime_errors(my_program().model):
        raise KeyError("x")
