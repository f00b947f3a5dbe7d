"""The facts of models that are saved with less metadata."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
from torch import nn

import fx_onnx
from fx_onnx.report.graph_facts import graph_facts
from tests.files.test_metadata_levels import Net, X, saved


@pytest.mark.parametrize("functions", [False, {nn.Sequential}], ids=["inline", "functions"])
def test_names_are_enough_for_the_tree_of_modules(functions: Any) -> None:
    shapes = ({0: "batch"},)
    program = fx_onnx.export(
        Net().eval(), (X,), dynamic_shapes=shapes, export_modules_as_functions=functions, verbose=True
    )
    (facts, *_) = graph_facts(ir.from_proto(saved(program, "names")))
    (whole, *_) = graph_facts(program.model)
    assert [module.path for module in facts.modules] == [module.path for module in whole.modules]
    assert all(source.frames == () for source in facts.sources)
