"""The compiler of the target qnn; what needs its package is skipped without it."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from fx_onnx.backends import qnn_compiler
from fx_onnx.backends.qnn_compiler import compile_model, installed_version, run_program
from fx_onnx.targets.compilation import Refusal
from tests.exporting import exported
from tests.passes.checking import model

X = torch.ones(2, 3)
needs_package = pytest.mark.skipif(not installed_version(), reason="onnxruntime-qnn is not installed")
RELU = "g (float[4] x) => (float[4] y) { y = Relu(x) }"


def test_without_the_package_the_table_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qnn_compiler, "installed_version", lambda: "")
    support = exported(torch.relu, X, target="qnn").supports("qnn")
    assert support and not support.is_compiled
    assert "by its table, not compiled" in str(support) and "the extra fx_onnx[qnn]" in str(support)


LOG = """2026 [V:onnxruntime:, a.cc:1 LogNodeSupport] Validation FAILED for 1 nodes in OrtNodeUnit (Erf) :
\tOperator type: Erf Node name: gelu.Erf_1 Node index: 4
\tREASON : Operators of type `Erf` are not supported.
2026 [E:onnxruntime:, a.cc:2 Compile] Failed to finalize: 1002
"""


@pytest.mark.parametrize(
    ("log", "refusal"),
    [
        (LOG, Refusal("Operators of type `Erf` are not supported.", "gelu.Erf_1", "Erf")),
        (
            LOG[LOG.index("2026 [E") :] + "it failed\n",
            Refusal("the compiler ended; Failed to finalize: 1002; it failed"),
        ),
    ],
)
def test_the_log_has_the_reasons(log: str, refusal: Refusal) -> None:
    assert list(qnn_compiler._refusals(log)) == [refusal]


def test_a_compiler_that_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "ends.py"
    program.write_text("raise SystemExit('no library')")
    monkeypatch.setattr(qnn_compiler.qnn_session, "__file__", str(program))
    monkeypatch.setattr(qnn_compiler, "installed_version", lambda: "2.7.0")
    assert compile_model(model(RELU), {}).refusals == (Refusal("the compiler ended; no library"),)


@needs_package
def test_a_model_is_compiled() -> None:
    support = exported(torch.relu, X, target="qnn").supports("qnn")
    assert support and support.is_compiled and "qnn: compiled" in str(support)
    assert "onnxruntime-qnn" in support.source


@needs_package
def test_a_refusal_has_its_node() -> None:
    compilation = compile_model(model("g (float[4] x) => (float[4] y) { y = Erf(x) }"), {})
    assert compilation.refusals[0].operator == "Erf" and not compilation.size


@needs_package
def test_the_simulator_computes(tmp_path: Path) -> None:
    ir.save(model(RELU), tmp_path / "model.onnx")
    np.savez(tmp_path / "in.npz", x=np.array([-1, 2, -3, 4], np.float32))
    size, refusals = run_program(tmp_path / "model.onnx", tmp_path / "in.npz", tmp_path / "out.npz")
    assert size and not refusals
    assert np.load(tmp_path / "out.npz")["y"].tolist() == pytest.approx([0, 2, 0, 4], rel=1e-3)
