"""The program that compiles for the target qnn, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import onnx_ir as ir

from fx_onnx.backends import qnn_session
from tests.backends.test_qnn_compiler import needs_package
from tests.passes.checking import model


def said(path: Path, text: str) -> subprocess.CompletedProcess[str]:
    ir.save(model(text), path)
    return subprocess.run(
        [sys.executable, qnn_session.__file__, str(path)], capture_output=True, text=True, check=False
    )


def test_it_imports_nothing_of_fx_onnx() -> None:
    """Otherwise a process that the compiler ends would cost seconds to start."""
    assert "import fx_onnx" not in (text := Path(qnn_session.__file__).read_text(encoding="utf-8"))
    assert "from fx_onnx" not in text


@needs_package
def test_size_and_error(tmp_path: Path) -> None:
    taken = said(tmp_path / "model.onnx", "g (float[4] x) => (float[4] y) { y = Relu(x) }")
    assert json.loads(taken.stdout[taken.stdout.index('{"bytes"') :])["bytes"] > 0
    refused = said(tmp_path / "model.onnx", "g (float[4] x) => (float[4] y) { y = Erf(x) }")
    assert refused.returncode and "fallback to CPU EP" in refused.stderr
