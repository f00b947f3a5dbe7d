"""Tests of the records of the layouts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest
import torch
import transformers

from fx_onnx.applications.export_pretrained import export_pretrained
from fx_onnx.applications.layouts import LAYOUTS, choose
from fx_onnx.applications.parts import one_graph
from fx_onnx.applications.precisions import convert
from fx_onnx.messages.errors import ArgumentError

_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def test_sentence_transformers_keep_their_modules_beside_the_file(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    transformers.BertModel(transformers.BertConfig(**_SMALL, vocab_size=50)).save_pretrained(source)
    (source / "modules.json").write_text(json.dumps([]))
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text("{}")
    (file,) = export_pretrained(source, out, layout="sentence-transformers", verify=False)
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert found == {"onnx/model.onnx", "config.json", "modules.json", "1_Pooling/config.json"}
    assert file.name == "onnx/model.onnx" and file.difference is None


def test_a_session_with_the_default_options_is_exact_in_4_bits(tmp_path: Path) -> None:
    """ONNX Runtime's default rounds what DequantizeLinear's products read to 8 bits; each layout has its operator."""
    pytest.importorskip("torchao")
    sizes = {**_SMALL, "hidden_size": 64, "num_attention_heads": 4}
    model = transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=50)).eval()
    export_pretrained(model, tmp_path / "out", task="feature-extraction", precision="q4", verify=False)
    (part,) = one_graph(model, ("last_hidden_state",), {})
    given = {name: value.numpy() for name, value in part.kwargs.items()}
    (found,) = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx").run(None, given)
    want = convert(part.module, part.kwargs, "q4").module(**part.kwargs)["last_hidden_state"]
    torch.testing.assert_close(torch.from_numpy(found), want, rtol=1e-4, atol=1e-4)
    assert {(row.target or "").removesuffix("-genai") for row in LAYOUTS.values()} == {"onnxruntime"}


def test_the_tables_are_read_without_torch() -> None:
    text = "import sys; from fx_onnx.applications import layouts; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_precision_of_4_bits_needs_an_opset_with_blocks() -> None:
    assert choose("genai", "q4", 21)[1] == ("q4",)
    with pytest.raises(ArgumentError, match="The precision q4 needs opset 21 or above, not 20"):
        choose("genai", ["fp32", "q4"], 20)
