"""Tests of the files beside the model, after an export that succeeded and after one that failed."""

from pathlib import Path

import pytest
import torch

import fx_onnx
from fx_onnx.messages.errors import CaptureError, OnnxExporterWarning
from fx_onnx.program.export_log import record


def test_only_requested_files_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with record(folder, verbose=None, report=False, profile=False, program=True):
        pass
    assert not folder.exists()


def test_report_and_profile_of_a_failure(tmp_path: Path) -> None:
    with (
        pytest.raises(CaptureError, match="no way"),
        record(tmp_path / "new", verbose=None, report=True, profile=True, program=True) as log,
        log.stage("capture"),
    ):
        raise CaptureError("no way")
    names = sorted(path.name.split("_", 4)[-1] for path in (tmp_path / "new").iterdir())
    assert names == ["capture.html", "capture.md", "profile.txt"]
    (report,) = (tmp_path / "new").glob("*.md")
    assert "CaptureError: no way" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize("fails", [False, True])
def test_files_that_cannot_be_written_are_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    folder = tmp_path / "artifacts"
    model = torch.nn.Linear(2, 2)

    def forward(x: torch.Tensor) -> torch.Tensor:
        folder.write_text("a file where the folder should be")  # after the arguments were checked
        if fails:
            raise ValueError("no way")
        return x + 1

    monkeypatch.setattr(model, "forward", forward)
    with pytest.warns(OnnxExporterWarning) as caught:
        if fails:
            with pytest.raises(CaptureError, match="no way"):
                fx_onnx.export(model, (torch.ones(2),), report=True, profile=True, artifacts_dir=folder)
        else:
            program = fx_onnx.export(
                model, (torch.ones(2),), report=True, profile=True, dump_exported_program=True, artifacts_dir=folder
            )
            assert program(torch.ones(2))[0].tolist() == [2, 2]
    (message,) = [str(each.message) for each in caught if each.category is OnnxExporterWarning]
    messages = [line.removeprefix("- ") for line in message.splitlines() if "was not written" in line]
    wanted = ["profile", "report"] if fails else ["profile", "captured program", "report"]
    assert [message.split(" was not written")[0] for message in messages] == [f"The {name}" for name in wanted]


def test_a_report_that_cannot_be_encoded_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: object, *_: object) -> None:
        raise UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed")

    monkeypatch.setattr("fx_onnx.program.export_log.ExportLog.write", write)
    with pytest.warns(OnnxExporterWarning, match="The report was not written: UnicodeEncodeError"):
        program = fx_onnx.export(torch.nn.ReLU(), (torch.ones(2),), report=True, artifacts_dir=tmp_path)
    assert program(torch.ones(2))[0].tolist() == [1, 1]
