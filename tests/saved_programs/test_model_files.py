"""Models from files: programs of torch.export, also of an older torch, and TorchScript models."""

from __future__ import annotations

import dataclasses
import io
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import fx_onnx
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.saved_programs import model_files
from fx_onnx.saved_programs.model_files import load_model

X = torch.randn(4, 8)


def saved(path: Path, model: nn.Module, dims: object = None) -> Path:
    torch.export.save(torch.export.export(model.eval(), (X,), dynamic_shapes=dims), path)
    return path


def as_older_torch(path: Path) -> Path:
    """Returns a copy of a file without guards, as torch 2.8 writes it."""
    older = path.with_name(f"older_{path.name}")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(older, "w") as copy:
        for entry in archive.namelist():
            copy.writestr(entry, archive.read(entry).replace(b'"guards_code"', b'"unknown"'))
    return older


class Packing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrence = nn.GRU(8, 3, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        return pad_packed_sequence(self.recurrence(packed)[0], True)[0]


def test_the_operators_of_a_file_are_defined_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, defined = Packing().eval(), list[str]()
    given = torch.randn(2, 5, 8), torch.tensor([3, 5])
    torch.export.save(fx_onnx.export(model, given, verbose=False).exported_program, tmp_path / "m.pt2")
    monkeypatch.setattr(model_files, "find", lambda group, name: defined.append(name))
    torch.testing.assert_close(fx_onnx.export(tmp_path / "m.pt2")(*given)[0], model(*given))
    assert defined == ["fx_onnx::gru"]


@pytest.mark.parametrize("as_text", [False, True])
def test_a_program_from_a_file_is_exported_with_its_example(tmp_path: Path, as_text: bool) -> None:
    model = nn.Linear(8, 3)
    path = saved(tmp_path / "m.pt2", model, ({0: Dim("batch")},))
    program = fx_onnx.export(str(path) if as_text else path, dynamic_shapes={"input": {0: "rows"}})
    assert [str(dim) for dim in program.model.graph.inputs[0].shape] == ["rows", "8"]
    torch.testing.assert_close(program(X[:2])[0], model(X[:2]))


def test_a_torchscript_file_is_exported(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(nn.ReLU()), tmp_path / "m.pt")
    torch.testing.assert_close(fx_onnx.export(tmp_path / "m.pt", (X,))(X)[0], X.relu())


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(-1, 2, 8) + (x[1:].sum() if x.shape[0] > 2 else 0)


def test_the_conditions_of_a_file_are_told(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pt2", Halves(), ({0: Dim.AUTO},))
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"only where x.shape\[0\] % 2 == 0"):
        program = fx_onnx.export(path)
    assert "3 or more, even" in str(program.dims)


def test_an_older_file_has_ranges_alone(tmp_path: Path) -> None:
    path = as_older_torch(saved(tmp_path / "m.pt2", Halves(), ({0: Dim.AUTO},)))
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="older_m.pt2 was saved by an older torch"):
        program = fx_onnx.export(path)
    assert str(program.dims) == "x_dim_0: 3 or more"


def test_an_older_file_with_static_sizes_lacks_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)
        fx_onnx.export(as_older_torch(saved(tmp_path / "m.pt2", Halves())))


@dataclasses.dataclass
class Pair:
    first: Tensor
    second: Tensor


class ToPair(nn.Module):
    def forward(self, x: Tensor) -> Pair:
        return Pair(x + 1, x * 2)


def test_a_class_that_is_unknown_here_is_named(tmp_path: Path) -> None:
    torch.export.register_dataclass(Pair, serialized_type_name="Pair of a test")
    path = saved(tmp_path / "m.pt2", ToPair())
    content = {}
    with zipfile.ZipFile(path) as archive:
        content = {
            entry: archive.read(entry).replace(b"Pair of a test", b"Pair of others") for entry in archive.namelist()
        }
    with zipfile.ZipFile(path, "w") as archive:
        for entry, data in content.items():
            archive.writestr(entry, data)
    with pytest.raises(ArgumentError, match=r"Pair of others .*; first import what defines its operators and classes"):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.pt2", b"", r"m.pt2 is neither a .pt2 file of torch.export nor a TorchScript file"),
        ("m.pth", b"\x80\x02", "m.pth is pickled: loading it would run the code in the file"),
        ("m.zip", None, "m.zip is neither a .pt2 file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("notes.txt", "")
        content = buffer.getvalue()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArgumentError, match=message):
        fx_onnx.export(tmp_path / name)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="There is no file"):
        fx_onnx.export(tmp_path / "nothing.pt2")
    with pytest.raises(ArgumentError, match="is a folder; a model is"):
        fx_onnx.export(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ArgumentError, match=r"call fx_onnx\.export_pretrained"):
        fx_onnx.export(tmp_path)


class Code:
    """An object whose pickle runs code when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


def test_pickled_code_is_not_run(tmp_path: Path) -> None:
    path, mark = saved(tmp_path / "m.pt2", nn.ReLU()), tmp_path / "mark"
    buffer = io.BytesIO()
    torch.save((((X,), Code(mark)), {}), buffer)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "other.pt2", "w") as other:
        for entry in archive.namelist():
            is_example = entry.endswith("sample_inputs/model.pt")
            other.writestr(entry, buffer.getvalue() if is_example else archive.read(entry))
    with pytest.raises(ArgumentError, match=r"its example inputs would run code of .*add_safe_globals"):
        fx_onnx.export(tmp_path / "other.pt2")
    assert not mark.exists()
