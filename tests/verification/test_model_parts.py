"""A model is cut at the values of FX nodes, and each part runs on given values."""

from __future__ import annotations

import pytest
import torch

from fx_onnx.verification import model_parts
from fx_onnx.verification.model_parts import ModelParts, functional_program
from tests.verification.sample_models import Encoder, X, export


def parts_of(times: int = 1, **options: object) -> ModelParts:
    program = export(Encoder(times), X, **options)
    assert program.exported_program is not None
    return ModelParts(program.model, functional_program(program.exported_program))


def test_parts_read_the_values_before_them() -> None:
    parts = parts_of()
    assert [part.name for part in parts.parts] == ["linear", "gelu", "linear_1", "relu", "linear_2"]
    reads = [[read.name for read in part.reads] or [value.name for value in part.inputs] for part in parts.parts]
    assert reads == [["x"], ["linear"], ["gelu"], ["linear_1"], ["relu"]]
    assert [part.weight_bytes for part in parts.parts[:2]] == [(64 + 8) * 4, 0]
    assert parts.output_names == ["linear_2"]


def test_a_part_runs_on_the_given_values() -> None:
    parts = parts_of()
    by_name = {part.name: part for part in parts.parts}
    given = torch.linspace(-1, 2, 16).reshape(2, 8)
    found = parts.run([by_name["relu"], by_name["gelu"]], {"linear_1": given, "linear": given})
    assert torch.equal(found[0], given.relu())
    torch.testing.assert_close(found[1], torch.nn.functional.gelu(given))
    assert [value.name for value in parts.extract([by_name["gelu"]]).graph.inputs] == ["linear.given"]


def test_the_size_of_a_value() -> None:
    assert model_parts.value_bytes(torch.ones(3, 2)) == 24
    assert model_parts.value_bytes(7) == 8


@pytest.mark.parametrize("optimize", [True, False])
def test_a_value_of_another_type_is_no_part(optimize: bool) -> None:
    """The model has no complex values, although the captured program has."""

    class Spectrum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.rfft(x).abs() + 1

    program = export(Spectrum(), X, optimize=optimize)
    assert program.exported_program is not None
    found = ModelParts(program.model, functional_program(program.exported_program))
    assert [part.name for part in found.parts] == ["abs_1", "add"]
    assert program.verify(X).ok
