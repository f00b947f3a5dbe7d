"""Where the command finds a model."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fx_onnx import ArgumentError, OnnxExporterError
from fx_onnx.cli.model_sources import load

MODELS = """
import torch

module = torch.nn.Linear(2, 3)

def build():
    return torch.nn.Linear(2, 3)

def with_inputs():
    return torch.nn.Linear(2, 3), (torch.ones(1, 2),)

def with_keywords():
    return torch.nn.Linear(2, 3), (), {"input": torch.ones(1, 2)}

def with_size(size):
    return torch.nn.Linear(size, 3)

def number():
    return 3

def fails():
    return {}["weights"]

class Net(torch.nn.Module):
    def forward(self, x):
        return x
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "models_of_user.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("models_of_user", None)


@pytest.mark.parametrize("name", ["module", "build", "Net"])
def test_an_object_or_a_function(name: str) -> None:
    source = load(f"models_of_user:{name}")
    assert isinstance(source.model, torch.nn.Module)
    assert not source.has_inputs


def test_a_function_may_return_the_inputs() -> None:
    assert load("models_of_user:with_inputs").args[0].shape == (1, 2)
    assert list(load("models_of_user:with_keywords").kwargs) == ["input"]


def test_a_file_of_torch_export(folder: Path) -> None:
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), folder / "m.pt2")
    source = load("m.pt2")
    assert isinstance(source.model, torch.export.ExportedProgram)
    assert source.has_inputs


def test_a_torchscript_file(folder: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), folder / "m.pt")
    assert isinstance(load("m.pt").model, torch.jit.ScriptModule)


@pytest.mark.parametrize("saved", [torch.nn.ReLU(), {"weight": torch.ones(2)}])
def test_a_pickle_is_refused(folder: Path, saved: object) -> None:
    torch.save(saved, folder / "m.pt")
    with pytest.raises(ArgumentError, match="loading it would run the code in the file"):
        load("m.pt")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no_module_of_this_name:build", "no module named 'no_module_of_this_name'"),
        (
            "models_of_user.py:with_size",
            r"no module named 'models_of_user\.py'.*; did you mean 'models_of_user:with_size'",
        ),
        (".", r"^\. is a folder; a model is"),
        ("models_of_user:nothing", "has no attribute 'nothing'"),
        ("models_of_user:with_sise", r"no attribute 'with_sise'; did you mean 'with_size'"),
        ("models_of_user:with_size", "needs the argument 'size'"),
        ("models_of_user:number", "gives an object of the type int; it must give a Module"),
        ("models_of_user.py", "neither a .pt2 file of torch.export nor a TorchScript file"),
        ("nowhere.pt2", "There is no file nowhere.pt2"),
        ("hf:nowhere", "There is no folder nowhere, and nothing is downloaded"),
    ],
)
def test_what_gives_no_model_is_refused(source: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        load(source)


@pytest.mark.parametrize("member", ["models/model.json", "archive_format", "constants.pkl", "data.pkl"])
def test_a_damaged_archive_is_refused(folder: Path, member: str) -> None:
    model = torch.nn.Linear(2, 3)
    if member.endswith(".pkl"):
        torch.jit.script(model).save(folder / "m.pt")
    else:
        torch.export.save(torch.export.export(model, (torch.ones(1, 2),)), folder / "m.pt2")
    valid = next(folder.glob("m.pt*"))
    with zipfile.ZipFile(valid) as archive, zipfile.ZipFile(folder / "damaged.pt2", "w") as damaged:
        for entry in archive.infolist():
            content = archive.read(entry)
            damaged.writestr(entry.filename, content[:-9] if entry.filename.endswith(f"/{member}") else content)
    with pytest.raises(ArgumentError, match=r"cannot load damaged\.pt2: \w+: .*; it is damaged or too new"):
        load("damaged.pt2")


def test_a_folder_of_transformers_needs_its_prefix(folder: Path) -> None:
    (folder / "bert").mkdir()
    (folder / "bert" / "config.json").write_text("{}")
    with pytest.raises(ArgumentError, match=r"bert is a folder of a Hugging Face model; .* or name it hf:bert"):
        load("bert")


def test_a_task_without_a_hugging_face_folder_is_refused() -> None:
    with pytest.raises(ArgumentError, match="--task and --with-past are for Hugging Face models"):
        load("models_of_user:build", task="text-generation")


def test_an_error_of_the_users_code_is_one_sentence(folder: Path) -> None:
    with pytest.raises(OnnxExporterError, match=r"fails raises KeyError: 'weights' \(.*user.py:\d+: return {}"):
        load("models_of_user:fails")
    (folder / "broken_module.py").write_text("1 / 0\n")
    with pytest.raises(OnnxExporterError, match=r"^broken_module:x raises ZeroDivisionError: .*module.py:1: 1 / 0"):
        load("broken_module:x")
