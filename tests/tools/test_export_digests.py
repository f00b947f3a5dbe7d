"""The digests of exports: which changes they show, and which they do not."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import onnx
import pytest
import torch

import fx_onnx
from tools import digest_cases, export_digests
from tools.digest_cases import CASES, Function
from tools.export_digests import differences, digest, main, model_sha, without_places


def _model(**options: object) -> onnx.ModelProto:
    return fx_onnx.export(Function(torch.relu), (torch.ones(2, 3),), **options).model_proto


def test_an_export_has_the_same_digest_in_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    for path in (old, new):
        assert main(["write", str(path), "--only", "random/dropout*"]) == 0
    assert {*json.loads(old.read_text())} == {"random/dropout", "random/dropout/dynamic"}
    assert main(["compare", str(old), str(new)]) == 0
    new.write_text(old.read_text().replace("Every dim is static", "No dim is static"))
    capsys.readouterr()
    assert main(["compare", str(old), str(new)]) == 1
    shown = capsys.readouterr().out
    assert "random/dropout: result: dims\n" in shown and "2 cases in both files, 1 cases differ" in shown


def test_the_cases_are_many() -> None:
    for module in export_digests.MODULES:
        __import__(f"tools.{module}")
    assert len(CASES) > 600


@pytest.mark.parametrize("change", ["nodes", "weights", "metadata", "places of the package"])
def test_what_changes_the_hash_of_a_model(change: str, tmp_path: Path) -> None:
    model = fx_onnx.export(torch.nn.Linear(3, 2).eval(), (torch.ones(2, 3),)).model_proto
    other = copy.deepcopy(model)
    if change == "nodes":
        other.graph.node[0].op_type = "MatMul"
    elif change == "weights":
        other.graph.initializer[0].raw_data = bytes(len(other.graph.initializer[0].raw_data))
    else:
        text = 'File "fx_onnx/capture/a.py", line 3, in f\n    x' if change == "places of the package" else "new"
        other.graph.node[0].metadata_props.add(key="a", value=text)
        model.graph.node[0].metadata_props.add(key="a", value="")
    equal = change == "places of the package"
    assert (model_sha(model, tmp_path) == model_sha(other, tmp_path)) is equal


def test_errors_findings_and_files(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        raise fx_onnx.ArgumentError(f"no {folder} in {Path.cwd()}/a.py at 0x7f00aa11")

    def saves(folder: Path) -> fx_onnx.ONNXProgram:
        shapes = ({0: "n"},)
        function = Function(lambda x: x if x.shape[0] > 3 else -x)
        return fx_onnx.export(function, (torch.ones(4),), folder / "a.onnx", dynamic_shapes=(shapes,))

    assert digest(fails) == {
        "error": ["ArgumentError", "FX1001", "no FOLDER in a.py at ADDRESS [fx-onnx explain FX1001]"]
    }
    found = digest(saves)
    assert [each[0] for each in found["result"]["findings"]] == ["FX1202"] and "4 or more" in found["result"]["dims"]
    assert list(found["files"]) == ["a.onnx"] and len(found["files"]["a.onnx"]) == 64
    assert digest(saves) == found


def test_differences() -> None:
    old = {"a": {"files": {"x": "1", "y": "2"}}, "b": {"error": ["E", "", "t"]}}
    assert differences(old, copy.deepcopy(old)) == []
    new = {"a": {"files": {"x": "1", "y": "3"}}, "c": {}}
    assert [each.partition("\n")[0] for each in differences(old, new)] == ["a: files: y", "b", "c"]


def test_a_name_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_cases, "CASES", {"a": lambda folder: None})
    with pytest.raises(ValueError, match="two cases a"):
        digest_cases.add_case("a", lambda folder: None)


def test_places() -> None:
    text = "at fx_onnx/a/b.py:12 and model.py:3, a fx_onnx.capture.module.Wrapper of /x/site-packages/torch/a.py"
    assert without_places(text, Path("/folder")) == "at PACKAGE and model.py:3, a PACKAGE.Wrapper of torch/a.py"
