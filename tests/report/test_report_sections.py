"""Sections: what has no content is left out, sizes have units, and differences belong to modules."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx.program.export_facts import Facts
from fx_onnx.report.facts import gather, verdict_of
from fx_onnx.report.report_sections import (
    compared_values,
    headline,
    module_differences,
    sections,
    size,
)
from fx_onnx.sizes.dim_table import DimSummary, DimTable
from fx_onnx.verification.verify import Difference, Verification
from tests.report.facts_examples import COMPLETE


def test_sections_without_content_are_left_out() -> None:
    assert sections(Facts()) == []
    titles = [(each.title, each.place) for each in sections(COMPLETE)]
    assert titles == [
        ("Inputs and outputs", "top"),
        ("Dims", "top"),
        ("Verification", "top"),
        ("Rewrites", "bottom"),
        ("Stages, the slowest first", "bottom"),
        ("Slowest modules", "bottom"),
        ("Operators", "bottom"),
        ("ATen operators", "dump"),
        ("Translations", "dump"),
        ("Versions", "dump"),
        ("Captured program", "dump"),
        ("Profile", "dump"),
    ]
    (dims,) = sections(Facts(dims=DimTable()))
    assert dims.note == "Every dim is static."


def test_long_dims_of_outputs_have_a_letter_and_others_depend_on_data() -> None:
    long = "min(300,(height+7)//8*((n+7)//8)+4)"
    model = replace(
        COMPLETE.model, inputs=["x: float[n, height]"], outputs=[f"y: float[{long}, u0]", f"z: float[2*u0, {long}]"]
    )
    outputs, dims = sections(Facts(model=model, dims=DimTable((DimSummary("n", ("x.shape[0]",)),))))[:2]
    assert [row[2] for row in outputs.rows] == ["float[n, height]", "float[n2, u0]", "float[2*u0, n2]"]
    assert [tuple(row) for row in dims.rows] == [
        ("n", "x.shape[0]", "any", ""),
        ("n2", "y.shape[0], z.shape[1]", long, ""),
        ("u0", "y.shape[1], z.shape[0]", "depends on data", ""),
    ]


def test_each_row_has_a_cell_for_each_column() -> None:
    for section in sections(COMPLETE):
        assert {len(row) for row in section.rows} <= {len(section.header)}


@pytest.mark.parametrize(
    ("length", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1534, "1.5 kB"), (123_456_789, "123 MB"), (2e9, "2.0 GB")]
)
def test_sizes(length: float, text: str) -> None:
    assert size(length) == text


def test_the_headline_names_what_is_known() -> None:
    assert list(headline(COMPLETE)) == ["model", "opset", "nodes", "parameters", "file", "time", "versions"]
    assert headline(Facts()) == {}


def test_differences_belong_to_the_modules_that_compute_the_values() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.a(x), self.b(x)

    program = fx_onnx.export(Net().eval(), (torch.ones(1, 2),), output_names=["y", "z"])
    near = Difference("y", "float32", (1, 2), 0.5, 0.5, 0, 1.0, "")
    far = Difference("z", "float32", (1, 2), 0.1, 0.1, 0, 0.0, "differs")
    facts = gather(Facts(verification=Verification((near, far))), program)
    graph = facts.graphs[0]
    found = {graph.modules[index].path: one for index, one in module_differences(facts, graph).items()}
    assert found == {"a": near, "b": far, "": far}


def test_values_inside_the_model_are_preferred_to_outputs() -> None:
    output = Difference("y", "float32", (1, 2), 0.5, 0.5, 0, 1.0, "")
    inner = Difference("y", "float32", (1, 2), 0.1, 0.1, 0, 1.0, "")
    facts = Facts(verification=Verification((output,)), values=(inner,))
    assert compared_values(facts) == {"y": inner}


def test_a_verified_export_has_the_difference_of_each_module() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    program = fx_onnx.export(model, (torch.randn(2, 4),), dynamic_shapes=({0: "batch"},), verify=True)
    facts = gather(program.export_facts, program, program.exported_program)
    graph = facts.graphs[0]
    found = {graph.modules[index].path for index in module_differences(facts, graph)}
    assert found == {"", "0", "1", "2"}
    (section,) = (each for each in sections(facts) if each.title == "Verification")
    assert [row[0] for row in section.rows] == ["ok"] * len(section.rows)
    assert any(" at batch=" in row[1] for row in section.rows)
    assert "It also agrees at batch=" in verdict_of(facts).details[0]
