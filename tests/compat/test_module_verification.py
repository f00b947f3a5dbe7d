"""verify with the options of torch.onnx: tolerances, backends, None, and the mode of the module."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.compat.module_verification import OnnxBackend, VerificationOptions, verify, verify_onnx_program

X = torch.randn(2, 3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Any:
        self.calls += 1
        y = self.linear(x).relu()
        return y if scale is None else (y * scale, None)


def test_a_module_is_verified_in_eval_mode_and_left_as_it_was() -> None:
    module = Net().train()
    verify(module, X, {"scale": torch.ones(4)}, additional_test_inputs=[(X + 1, torch.ones(4))])
    assert module.training
    assert module.calls == 0


@pytest.fixture
def wrong_translation() -> Any:
    fx_onnx.register_custom_op_symbolic("aten::relu", lambda g, x: g.op("LeakyRelu", x, alpha_f=0.5), 9)
    yield
    fx_onnx.unregister_custom_op_symbolic("aten::relu", 9)


MOSTLY_POSITIVE = torch.tensor([1.0, 2.0, 3.0, -4.0])


@pytest.mark.usefixtures("wrong_translation")
def test_options() -> None:
    module = nn.ReLU()
    with pytest.raises(
        AssertionError,
        match=r"(?s)The output 'relu' differs: .*1 of 4 elements differ.*first differs at .* = aten\.relu",
    ):
        verify(module, MOSTLY_POSITIVE)
    verify(module, MOSTLY_POSITIVE, options=VerificationOptions(atol=2.1))
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"25.00% of the output 'relu' differ"):
        verify(module, MOSTLY_POSITIVE, options=VerificationOptions(acceptable_error_percentage=0.25))
    with pytest.raises(AssertionError, match="differs"):
        verify(module, MOSTLY_POSITIVE, options=VerificationOptions(acceptable_error_percentage=0.2))


def test_none_among_the_results() -> None:
    given: Any = {"input_args": X, "input_kwargs": {"scale": torch.ones(4)}}
    verify(Net(), **given)
    with pytest.raises(AssertionError, match="The module returns None"):
        verify(Net(), **given, options=VerificationOptions(ignore_none=False))


def test_backends() -> None:
    verify(nn.ReLU(), X, options=VerificationOptions(backend=OnnxBackend.REFERENCE))
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(fx_onnx.ArgumentError, match="has no provider 'CUDAExecutionProvider'"):
            verify(nn.ReLU(), X, options=VerificationOptions(backend=OnnxBackend.ONNX_RUNTIME_CUDA))


def test_dynamic_axes_and_further_inputs() -> None:
    verify(
        nn.Linear(3, 4), X, input_names=["x"], dynamic_axes={"x": {0: "n"}}, additional_test_inputs=[torch.randn(5, 3)],
        opset_version=18, training=fx_onnx.TrainingMode.TRAINING,
    )  # fmt: skip


def test_what_has_no_effect_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "fx_onnx.export")
    options = VerificationOptions(flatten=False, remained_onnx_input_idx=[0])
    verify(nn.ReLU(), X, fixed_batch_size=True, use_external_data=True, options=options)
    verify(nn.ReLU(), X, keep_initializers_as_inputs=False, options=options)
    logged = {text.split()[0] for text in caplog.messages if "has no effect" in text}
    assert logged == {
        "fixed_batch_size", "use_external_data", "keep_initializers_as_inputs", "flatten", "remained_onnx_input_idx",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: VerificationOptions(acceptable_error_percentage=5), "must be a number from 0 to 1, not 5"),
        (lambda: VerificationOptions(rtol="a"), "rtol must be a number that is not negative, not 'a'"),
        (lambda: VerificationOptions(backend="cpu"), "backend must be one of OnnxBackend.REFERENCE, .*, not 'cpu'"),
        (lambda: verify(nn.ReLU(), X, options=3), "options must be VerificationOptions, not 3"),
        (lambda: verify(3, X), "model must be a torch.nn.Module or an ExportedProgram, not int"),
        (lambda: verify_onnx_program(3), r"verify_onnx_program\(\) needs an ONNXProgram, not 3"),
    ],
)  # fmt: skip
def test_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(fx_onnx.ArgumentError, match=message):
        call()


@pytest.mark.parametrize("training", [fx_onnx.TrainingMode.PRESERVE, torch.onnx.TrainingMode.TRAINING])
def test_the_module_runs_in_the_mode_of_the_export(training: Any) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4)).train()
    module[1].eval()  # a frozen layer, whose statistics stay
    verify(module, torch.randn(16, 3), training=training)  # two rows may differ by rounding only
    assert [layer.training for layer in module] == [True, False, True]
