"""A value is described by its module, its operator, its translation and the user's line."""

from __future__ import annotations

import inspect
from pathlib import Path

import onnxscript
import pytest
import torch
from onnxscript import opset18

from fx_onnx.verification.fx_origin import origin_of
from fx_onnx.verification.model_parts import functional_program
from tests.verification import sample_models
from tests.verification.sample_models import Encoder, X, export, wrong_gelu


def origin(name: str, times: int = 1, **options: object) -> object:
    program = export(Encoder(times), X, **options)
    assert program.exported_program is not None
    nodes = {node.name: node for node in functional_program(program.exported_program).graph.nodes}
    return origin_of(nodes[name], (nodes[name],), program._origins)


FILE = "tests/verification/sample_models.py"


def test_a_custom_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(sample_models.__file__).parents[2])
    found = origin("gelu", wrong=True)
    line = inspect.getsourcelines(wrong_gelu)[1]
    assert str(found) == f"enc.1 (GELU) = aten.gelu, translated by wrong_gelu ({FILE}:{line})"
    call = inspect.getsourcelines(Encoder.forward)[1] + 3
    assert found.your_line == f"; your line: x = self.enc(x), {FILE}:{call}"
    assert (found.node, found.module, found.module_class) == ("gelu", "enc.1", "GELU")


def test_a_second_call_and_a_translation_of_the_package() -> None:
    assert str(origin("gelu_1", 2)).startswith("enc.1 (GELU, call 2) = aten.gelu, translated by ")
    assert str(origin("gelu_1", 2)).endswith(" of fx_onnx")
    assert str(origin("relu")).startswith("the model (Encoder) = aten.relu, translated by ")


def test_the_translation_of_a_part_of_a_decomposition() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.lerp(x, x.exp(), 0.25)

    def my_sub(op, self, other, *, alpha=1):  # type: ignore[no-untyped-def]
        return op.Sub(self, other)

    program = export(Model(), X, custom_translation_table={torch.ops.aten.sub.Tensor: my_sub})
    assert program.exported_program is not None
    nodes = {node.name: node for node in functional_program(program.exported_program).graph.nodes}
    text = str(origin_of(nodes["lerp"], (nodes["lerp"],), program._origins))
    assert "= aten.lerp.Scalar, translated by my_sub (" in text and text.endswith(" of aten.sub.Tensor")
    assert str(origin_of(nodes["lerp"], (nodes["exp"], nodes["lerp"]), program._origins)).endswith(
        "together with aten.exp"
    )
    assert str(origin_of(nodes["lerp"], (nodes["lerp"],), None)) == "the model (Model) = aten.lerp.Scalar"


def test_an_onnxscript_function() -> None:
    @onnxscript.script(onnxscript.values.Opset("tests", 1), default_opset=opset18)
    def script_relu(self):  # type: ignore[no-untyped-def]
        return opset18.Relu(self)

    found = str(origin("relu", custom_translation_table={torch.ops.aten.relu.default: script_relu}))
    assert "translated by script_relu (" in found and "test_fx_origin.py:" in found
