"""Checks of the place where a model is saved."""

import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fx_onnx.files.destination import check_destination, check_folder
from fx_onnx.messages.errors import ArgumentError


def test_right_destinations(tmp_path: Path) -> None:
    os.symlink(tmp_path / "real.onnx", tmp_path / "link.onnx")
    for destination in (tmp_path / "m.onnx", str(tmp_path / "link.onnx"), io.BytesIO(), Path(os.devnull)):
        check_destination(destination)
    check_destination(tmp_path / "m.onnx", external_data=True)
    assert [path.name for path in tmp_path.iterdir()] == ["link.onnx"], "a check writes nothing"


@pytest.mark.parametrize(
    ("destination", "message"),
    [
        (3, "to a path or a file opened in binary mode, not to 3"),
        (b"m.onnx", "to a path or a file opened in binary mode"),
        (io.StringIO(), "to a path or a file opened in binary mode, not to a StringIO"),
        ("", "The path of the model must be a string that is not empty"),
        (".", "it is a folder"),
        ("nowhere/m.onnx", "there is no such folder"),
        ("file/m.onnx", "there is no such folder"),
        ("m\0.onnx", "contains a NUL character"),
        ("\ud800.onnx", "is not valid Unicode"),
        ("m" * 300, "File name too long"),
    ],
)
def test_wrong_destinations(destination: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(ArgumentError, match=message) as raised:
        check_destination(destination)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file, pytest.raises(ArgumentError, match="need a file path"):
        check_destination(file, external_data=True)
    with pytest.raises(ArgumentError, match="is closed"):
        check_destination(file)
    with path.open("rb") as file, pytest.raises(ArgumentError, match="for reading only"):
        check_destination(file)


def test_the_check_of_a_folder_leaves_nothing(tmp_path: Path) -> None:
    check_folder("artifacts_dir", tmp_path / "a" / "b")
    check_folder("artifacts_dir", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("folder", "message"), [(5, "must be a path"), ("\0", "NUL"), ("file", "cannot be written")])
def test_wrong_folders(folder: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(ArgumentError, match=message):
        check_folder("artifacts_dir", folder)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder in which nobody can create files")
def test_a_read_only_folder() -> None:
    with pytest.raises(ArgumentError, match="artifacts_dir '/proc/x' cannot be written"):
        check_folder("artifacts_dir", "/proc/x")
