"""Tests of the records of the layouts."""

from __future__ import annotations

import json
from pathlib import Path

import transformers

from fx_onnx.pretrained.export_pretrained import export_pretrained

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
