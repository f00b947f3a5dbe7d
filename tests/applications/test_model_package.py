"""Tests of the manifest of a model package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import transformers

from fx_onnx.applications.export_pretrained import export_pretrained

_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def test_a_model_package_has_a_component_for_each_precision_and_equal_weights_once(tmp_path: Path) -> None:
    model = transformers.BertModel(transformers.BertConfig(**_SMALL, vocab_size=2000)).eval()
    export_pretrained(model, tmp_path / "out", layout="model-package", precision=["fp32", "int8"])
    components = json.loads((tmp_path / "out" / "manifest.json").read_text())["components"]
    files = {
        each["executor_info"]["ort"]["model_file"] for row in components.values() for each in row["variants"].values()
    }
    assert list(components) == ["model", "model_int8"] and files == {"model.onnx", "model_int8.onnx"}
    first, second = (tmp_path / "out" / f"{name}.onnx.data" for name in components)
    assert first.stat().st_size > 4 * 2000 * 16 > second.stat().st_size  # the embeddings of the words are in the first
    for name in components if hasattr(onnxruntime, "ModelPackageContext") else ():
        options = onnxruntime.ModelPackageOptions(onnxruntime.SessionOptions())
        package = onnxruntime.ModelPackageContext(str(tmp_path / "out"))
        session = package.select_component(name, options).create_session()
        ids = np.ones((1, 4), np.int64)
        given = {"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids}
        assert session.run(None, given)[0].shape == (1, 4, 16)
