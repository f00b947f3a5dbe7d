"""Levels of metadata: what a file tells about the code. The model itself is the same at each level."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import ArgumentError, ONNXProgram
from fx_onnx.files.metadata_levels import LEVELS
from fx_onnx.onnx_model import metadata

X = torch.randn(2, 4)


class Net(nn.Module):
    """A model with a body of control flow and a buffer that it writes; its block may become a local function."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.GELU())
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return torch.cond(x.sum() > 0, lambda x: self.block(x), lambda x: x.neg(), (x,)) + self.block(x)


@pytest.fixture(scope="module", params=[False, {nn.Sequential}], ids=["inline", "functions"])
def program(request: pytest.FixtureRequest) -> ONNXProgram:
    made = fx_onnx.export(
        Net().eval(), (X,), dynamic_shapes=({0: "batch"},), export_modules_as_functions=request.param, verbose=True
    )
    made.model.metadata_props["author"] = "me"
    made.model.graph[0].metadata_props["cost"] = "3"
    return made


def saved(program: ONNXProgram, level: str) -> onnx.ModelProto:
    file = io.BytesIO()
    program.save(file, metadata=level)
    return onnx.load_from_string(file.getvalue())


def _messages(message: Any) -> Any:
    """Yields a message and all messages inside it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if not hasattr(value, "ListFields") else [value]:
                yield from _messages(each)


def keys(message: Any) -> set[str]:
    return {entry.key for each in _messages(message) for entry in getattr(each, "metadata_props", ())}


def test_what_each_level_keeps(program: ONNXProgram) -> None:
    full, names, none = (saved(program, level) for level in LEVELS)
    assert keys(none) == {"author", "cost"}  # these are not the exporter's
    assert {"author", "namespace", "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"} <= keys(names)
    left_out = keys(full) - keys(names)
    assert {"pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node"} <= left_out
    assert any(node.doc_string for node in full.graph.node)
    for model in (names, none):
        text = model.SerializeToString()
        assert b".py" not in text
        assert b"forward" not in text
    assert b"aten.gelu.default" in names.SerializeToString()
    assert b"aten." not in none.SerializeToString()


def test_a_full_file_has_relative_paths_only(program: ONNXProgram) -> None:
    text = saved(program, "full").SerializeToString()
    assert b"tests/files/test_metadata_levels.py" in text
    for folder in (Path.cwd(), Path.home(), Path(torch.__file__).parents[1]):
        assert f"{folder}/".encode() not in text
    assert re.search(rb'File "/', text) is None


def test_nothing_else_changes(program: ONNXProgram) -> None:
    models = [saved(program, level) for level in LEVELS]
    for model in models:
        for each in _messages(model):
            if hasattr(each, "metadata_props"):
                each.ClearField("metadata_props")
            if isinstance(each, onnx.NodeProto):
                each.ClearField("doc_string")
    assert models[0] == models[1] == models[2]
    want = program(X)
    for model in models:
        got = ONNXProgram(ir.from_proto(model))(X)
        assert all(torch.equal(a, b) for a, b in zip(want, got, strict=True))


def test_external_data_and_export(tmp_path: Path) -> None:
    program = fx_onnx.export(nn.Linear(64, 64).eval(), (torch.ones(1, 64),), tmp_path / "a.onnx", metadata="none")
    program.save(tmp_path / "b.onnx", external_data=True, metadata="none")
    for name in ("a.onnx", "b.onnx"):
        assert keys(onnx.load(tmp_path / name)) == set()


def test_declarations_of_a_call_for_the_torchscript_exporter(tmp_path: Path) -> None:
    """Such callers compare a declaration with one that onnx.helper makes; state keeps what tells it from results."""
    names = {"input_names": ["left"], "output_names": ["right"]}
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="dynamo=False"):
        program = fx_onnx.export(Net().eval(), (X,), tmp_path / "a.onnx", dynamo=False, **names)  # type: ignore[arg-type]
    program.save(tmp_path / "b.onnx")
    for name in ("a.onnx", "b.onnx"):
        graph = onnx.load(tmp_path / name).graph
        made = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 4]) for name in ("left", "right")]
        assert [graph.input[0], graph.output[0]] == made
        assert keys(graph.node[0]) >= {"namespace", "pkg.torch.onnx.fx_node"}
        assert "USER_OUTPUT" in {entry.key: entry.value for entry in graph.metadata_props}[metadata.GRAPH_SIGNATURE]
        kinds = [{entry.key: entry.value for entry in value.metadata_props} for value in graph.output]
        assert kinds[1][metadata.OUTPUT_KIND] == "BUFFER_MUTATION"
    assert program.model.graph.outputs[0].metadata_props  # the program in memory keeps all


@pytest.mark.parametrize("wrong", ["some", None, 3, True])
def test_other_levels_are_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="metadata must be 'full', 'names' or 'none'"):
        fx_onnx.export(nn.ReLU().eval(), (X,), tmp_path / "m.onnx", metadata=wrong)
    assert list(tmp_path.iterdir()) == []
