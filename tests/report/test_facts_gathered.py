"""One gatherer adds the facts of the model to those of the export, for every form of the report."""

from pathlib import Path

import torch

import fx_onnx
from fx_onnx.program.export_facts import Facts
from fx_onnx.report.facts import gather


def test_without_a_program_the_versions_are_known() -> None:
    facts = gather(Facts(), None)
    assert {"fx_onnx", "torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "python"} <= set(facts.versions)
    assert facts.model is None
    assert facts.graphs == ()


def test_the_facts_of_a_program(tmp_path: Path) -> None:
    model = torch.nn.Linear(100, 100).eval()
    program = fx_onnx.export(model, (torch.ones(1, 100),), tmp_path / "m.onnx", external_data=True)
    facts = gather(program.export_facts, program, program.exported_program)
    assert facts.call == (
        "fx_onnx.export(\n    Linear(...),\n    (float32[1, 100],),\n"
        f"    f={str(tmp_path / 'm.onnx')!r},\n    external_data=True,\n)"
    )
    assert facts.model_name == "Linear"
    assert facts.model is not None
    assert facts.model.parameters == 10_100
    assert facts.files["m.onnx.data"] == 40_400
    assert facts.files["m.onnx"] == (tmp_path / "m.onnx").stat().st_size
    assert "ExportedProgram" in str(facts.exported_program)
    assert facts.support
    (tmp_path / "m.onnx").unlink()
    assert gather(facts, program).files == {}
