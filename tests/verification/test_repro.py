"""The script of a repro shows the difference in ONNX Runtime alone, in a process without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch

import fx_onnx
from tests.verification.sample_models import Encoder, X, export

ISOLATED = "import sys; sys.modules['torch'] = sys.modules['fx_onnx'] = None; import runpy; runpy.run_path(sys.argv[1])"


def run(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", ISOLATED, str(script)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_wrong_part_alone(tmp_path: Path, dtype: torch.dtype) -> None:
    def relu_for_gelu(op, self, *, approximate="none"):  # type: ignore[no-untyped-def]
        return op.Relu(self)

    x = X.to(dtype)
    program = export(Encoder().to(dtype), x, custom_translation_table={torch.ops.aten.gelu.default: relu_for_gelu})
    result = fx_onnx.verify(program, (x,), rtol=0.02)
    script = result.save_repro(tmp_path / "new" / "folder")
    assert script == tmp_path / "new" / "folder" / "repro.py"
    model = onnx.load(script.parent / "model.onnx")
    operators = {node.op_type for node in model.graph.node} - {"Cast"}
    # In bfloat16, ONNX Runtime computes both in float32, so the model has no bfloat16 value between them.
    assert operators == ({"Relu"} if dtype == torch.float32 else {"Relu", "Gemm"})
    done = run(script)
    assert done.returncode == 1, done.stderr
    assert "differs: the largest difference is 0.1" in done.stdout
    assert "enc.1 (GELU)" in script.read_text(encoding="utf-8")


def test_the_whole_model_if_no_part_is_wrong_alone(tmp_path: Path) -> None:
    program = export(Encoder(), X)
    result = fx_onnx.verify(program, (X,), module=lambda x: Encoder().eval()(x) + 1)
    assert not result.ok
    done = run(result.save_repro(tmp_path))
    assert done.returncode == 1 and "linear_2: differs: the largest difference is 1 " in done.stdout


def test_a_repro_that_is_mended_agrees(tmp_path: Path) -> None:
    script = export(Encoder(), X, wrong=True).verify(X).save_repro(tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    name = model.graph.output[0].name
    del model.graph.node[:]
    model.graph.node.append(onnx.helper.make_node("Gelu", [model.graph.input[0].name], [name]))
    model.opset_import[0].version = 20
    onnx.save(model, tmp_path / "model.onnx")
    done = run(script)
    assert done.returncode == 0 and "gelu: agrees" in done.stdout


def test_nothing_to_reproduce(tmp_path: Path) -> None:
    with pytest.raises(fx_onnx.ArgumentError, match="nothing to reproduce"):
        export(Encoder(), X).verify(X).save_repro(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(fx_onnx.ArgumentError, match="The repro cannot be written"):
        export(Encoder(), X, wrong=True).verify(X).save_repro(tmp_path / "file")
