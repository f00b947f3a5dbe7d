"""Stack traces with paths that do not depend on the machine, and without generated code."""

from pathlib import Path

import pytest
import torch

from fx_onnx.messages.source_lines import portable_stack_trace


def frame(path: str | Path, line: str = "return x + 1") -> str:
    return f'  File "{path}", line 3, in forward\n    {line}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("package/inner/__init__.py", "package/__init__.py", "package/inner/code.py", "scripts/net.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path / "scripts")
    return tmp_path


def test_a_file_of_a_package_is_named_from_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = frame(folder / "package/inner/code.py")
    assert portable_stack_trace(trace) == frame("package/inner/code.py")
    monkeypatch.chdir(folder / "package")
    assert portable_stack_trace(trace) == frame("package/inner/code.py")
    assert portable_stack_trace(frame(Path(torch.__file__).parent / "nn/modules/linear.py")) == frame(
        "torch/nn/modules/linear.py"
    )


def test_another_file_is_named_from_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = frame(folder / "scripts/net.py")
    assert portable_stack_trace(trace) == frame("net.py")
    monkeypatch.chdir(folder)
    assert portable_stack_trace(trace) == frame("scripts/net.py")
    monkeypatch.chdir(folder / "package")
    assert portable_stack_trace(trace) == frame("net.py")


def test_frames_of_generated_code_are_dropped(folder: Path) -> None:
    net = folder / "scripts/net.py"
    trace = frame(net, "a") + frame("<eval_with_key>.5", "b") + frame("<string>", "c") + frame("<eval_with_key>.6", "")
    assert portable_stack_trace(trace) == frame("net.py", "a") + frame("<string>", "c")
    assert portable_stack_trace(frame("<eval_with_key>.12 from 3", "b")) == ""
    assert portable_stack_trace("") == ""
    assert portable_stack_trace("made by a test") == "made by a test"
