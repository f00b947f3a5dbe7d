"""``fx-onnx run``: programs as a person starts them, in which torch.onnx exports through fx_onnx."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fx_onnx.cli.app import app

PROGRAM = """
import sys
import torch
from beside import sizes

program = torch.onnx.export(torch.nn.Sigmoid().eval(), (torch.ones(sizes),), sys.argv[-1])
print(__name__, sys.argv, type(program).__module__)
sys.exit(5)
"""


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["run", *arguments])


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "beside.py").write_text("sizes = (2, 3)\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    return tmp_path / "program.py"


@pytest.mark.parametrize("way", [["program.py"], ["-m", "program"]])
def test_a_program_exports_through_fx_onnx(script: Path, way: list[str]) -> None:
    argv, path = sys.argv, list(sys.path)
    done = _run(*way, "--help", "-o", "--", "model.onnx")
    assert done.exit_code == 5, done.output
    assert done.stdout.startswith("__main__ [") and done.stdout.endswith("fx_onnx.program.onnx_program\n")
    assert "'--help', '-o', '--', 'model.onnx'" in done.stdout
    assert script.with_name("model.onnx").exists()
    assert (sys.argv, sys.path) == (argv, path)


def test_an_installed_command(tmp_path: Path) -> None:
    done = _run("fx-onnx", "versions", "--json")
    assert done.exit_code == 0
    assert '"torch"' in done.stdout
    assert "fx-onnx did not call torch.onnx" in done.stderr


def test_a_command_on_the_path_whose_first_line_names_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "say-words"
    command.write_text("#!/usr/bin/env python3\nimport sys\nprint(sys.argv[1:])\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "['a', 'b']" in _run("say-words", "a", "b").stdout


@pytest.mark.parametrize("program", ["missing.py", "missing", "sh"])
def test_what_is_no_python_program_is_refused(program: str) -> None:
    done = _run(program)
    assert "is neither a Python file nor an installed command" in str(done.exception)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("no_such_module", "-m no_such_module: No module named no_such_module"),
        ("json", "-m json: No module named json.__main__; 'json' is a package and cannot be directly executed"),
    ],
)
def test_a_module_that_cannot_be_run(module: str, message: str) -> None:
    assert message in str(_run("-m", module).exception)


def test_an_import_that_fails_in_a_module_is_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    monkeypatch.chdir(tmp_path)
    assert type(_run("-m", "broken").exception) is ModuleNotFoundError
