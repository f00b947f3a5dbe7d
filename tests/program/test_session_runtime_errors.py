"""Errors of ONNX Runtime name the operator, the translation that emitted it, and the line of the model's code."""

from __future__ import annotations

from typing import Any

import onnxruntime
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


class Reshaped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 4) + 1


def reshaped() -> fx_onnx.ONNXProgram:
    return fx_onnx.export(Reshaped(), (torch.ones(4, 2),), dynamic_shapes=({0: "n"},))


def test_a_node_that_fails_has_its_line() -> None:
    line = Reshaped.forward.__code__.co_firstlineno + 1
    with pytest.raises(
        OnnxExporterError, match=r"fails at the node '[\w.]+' \(Reshape\) of aten.reshape \(.*: The input"
    ) as error:
        reshaped()(torch.ones(3, 2))
    assert error.value.place.endswith(f"test_session_runtime_errors.py:{line}")


@pytest.mark.parametrize(
    "use", [lambda p: p(torch.ones(3, 2)), lambda p: p.compute_values(["add"], (torch.ones(3, 2),))]
)
def test_onnxruntime_does_not_print_what_the_exception_says(use: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OnnxExporterError, match="The input"):
        use(reshaped())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("severity", "printed"), [(3, True), (4, False)])
def test_a_session_of_the_user_keeps_its_options(
    severity: int, printed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def session(model: str | bytes) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = severity
        return onnxruntime.InferenceSession(model, options)

    program = reshaped()
    program.initialize_inference_session(session)
    with pytest.raises(OnnxExporterError, match="The input"):
        program(torch.ones(3, 2))
    assert ("Non-zero status code" in capfd.readouterr().err) is printed


def test_a_model_that_is_not_loaded() -> None:
    program = fx_onnx.export(torch.nn.ReLU(), (torch.ones(2),))
    program.model.graph.opset_imports[""] = 99
    with pytest.raises(OnnxExporterError, match=r"ONNX Runtime does not run the model: .*99"):
        program(torch.ones(2))


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), explain_runtime_errors(my_program().model):
        raise KeyError("x")
