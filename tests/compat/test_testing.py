"""``assert_onnx_program`` passes for a right program and fails for a wrong one."""

from __future__ import annotations

import pytest
import torch

import fx_onnx
from fx_onnx.compat.testing import assert_onnx_program

X = torch.randn(2, 3)


@pytest.mark.parametrize("backend", ["onnxruntime", "reference"])
@pytest.mark.parametrize("args", [None, (X + 1,)])
def test_a_right_and_a_wrong_program(backend: str, args: tuple[torch.Tensor, ...] | None) -> None:
    program = fx_onnx.export(torch.nn.Linear(3, 2).eval(), (X,))
    assert_onnx_program(program, args=args, backend=backend, strategy="TorchExportNonStrictStrategy")  # type: ignore[arg-type]
    program.apply_weights({"bias": torch.full((2,), 9.0)})
    with pytest.raises(AssertionError, match="not close"):
        assert_onnx_program(program, args=args, backend=backend)  # type: ignore[arg-type]


def test_inside_of_the_replaced_torch_onnx() -> None:
    with fx_onnx.replacing_torch_onnx():
        program = torch.onnx.export(torch.nn.ReLU().eval(), (X,))
        torch.onnx.testing.assert_onnx_program(program, strategy=None)
        torch.onnx.testing.assert_onnx_program(program)
        assert isinstance(program, fx_onnx.ONNXProgram)


class Complex(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None, int]:
        return torch.complex(x, x + 1), None, 3


def test_complex_results_and_numbers() -> None:
    program = fx_onnx.export(Complex().eval(), (X,))
    assert_onnx_program(program)
    with pytest.raises(fx_onnx.ArgumentError, match="backend must be 'onnxruntime' or 'reference', not 'tf'"):
        assert_onnx_program(program, backend="tf")  # type: ignore[arg-type]
