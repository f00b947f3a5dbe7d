"""Tests of ``fx-onnx export --layout``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import transformers
from typer.testing import CliRunner

from fx_onnx.cli.app import app
from fx_onnx.messages.errors import ArgumentError


def test_a_layout_is_a_folder_with_a_summary(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.BertForMaskedLM(transformers.BertConfig(**sizes, vocab_size=50)).save_pretrained(tmp_path / "in")
    command = ["export", f"hf:{tmp_path / 'in'}", "-o", str(tmp_path / "out"), "--layout", "optimum", "--json"]
    (file,) = json.loads(CliRunner().invoke(app, command).stdout)["files"]
    assert file["name"] == "model.onnx" and file["difference"] < 1e-4
    assert file["size"] == (tmp_path / "out" / "model.onnx").stat().st_size
    last = CliRunner().invoke(app, command[:-1]).stdout.splitlines()[-1]
    assert last == f"{tmp_path / 'out'}: 1 ONNX file, {file['size']:,} bytes"


def test_calibration(tmp_path: Path) -> None:
    """Each file of the folder has the inputs of one call."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "in")
    (tmp_path / "images").mkdir()
    command = ["export", f"hf:{tmp_path / 'in'}", "-o", str(tmp_path / "out"), "--layout", "optimum", "--precision"]
    command += ["int8-static", "--calibration", str(tmp_path / "images")]
    found = CliRunner().invoke(app, command)
    assert isinstance(found.exception, ArgumentError) and "has no .npz file, one for each call" in str(found.exception)
    for name in "ab":
        np.savez(tmp_path / "images" / f"{name}.npz", pixel_values=np.random.rand(2, 3, 8, 8).astype(np.float32))
    lines = CliRunner().invoke(app, command).stdout.splitlines()
    assert lines[1].startswith("  int8-static: 0.") and lines[1].endswith(" of the largest result from fp32")
    (tmp_path / "images" / "c.npz").write_text("no")
    found = CliRunner().invoke(app, command)
    assert isinstance(found.exception, ArgumentError) and "c.npz is not an .npz file of tensors" in str(found.exception)
    found = CliRunner().invoke(app, ["export", "hf:in", "-o", "out", "--calibration", "images"])
    assert "--calibration needs --layout" in str(found.exception)


@pytest.mark.parametrize(
    "given, message",
    [
        (["hf:in", "--with-past"], "--with-past does not go with --layout"),
        (["a.pt2"], "write the source as hf:FOLDER"),
        (["hf:in", "-o", "out"], "There is no folder in"),
        (["hf:"], "The source hf: names no folder"),
    ],
)
def test_what_does_not_go_with_a_layout_is_refused(given: list[str], message: str, tmp_path: Path) -> None:
    command = ["export", *given, "--layout", "optimum"]
    found = CliRunner().invoke(app, command if "-o" in given else [*command, "-o", str(tmp_path / "out")])
    assert isinstance(found.exception, ArgumentError) and message in str(found.exception)


@pytest.mark.parametrize(("option", "start", "names"), [("--layout", "optimum", 2), ("--target", "onnxruntime-g", 1)])
def test_the_shell_completes_the_values(option: str, start: str, names: int) -> None:
    """As typer asks the program for them: the words so far, and the number of the word to complete."""
    program = "import sys; sys.argv[0] = 'fx-onnx'; from fx_onnx.cli.app import main; main()"
    words = f"fx-onnx export {option} {start}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "_FX_ONNX_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"},
    )  # fmt: skip
    assert len([line for line in done.stdout.split() if line.startswith(start)]) >= names, done.stderr
