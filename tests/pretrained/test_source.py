"""Tests of what is read from a folder of save_pretrained."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from fx_onnx.core.errors import ArgumentError
from fx_onnx.pretrained.source import find_task, load_config, load_model


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="nothing is downloaded"):
        load_config(tmp_path / "absent")
    with pytest.raises(ArgumentError, match=r"has no config\.json"):
        load_config(tmp_path)


def test_the_task_is_that_of_the_architecture() -> None:
    names = {
        "BertForQuestionAnswering": "question-answering",
        "BertModel": "feature-extraction",
        "BertForMaskedLM": "fill-mask",
    }
    for architecture, task in names.items():
        assert find_task(transformers.BertConfig(architectures=[architecture])) == task
    assert find_task(transformers.CLIPConfig(architectures=["CLIPModel"])) == "zero-shot-image-classification"


def test_a_task_that_the_type_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no vit model for the task 'fill-mask'; its tasks are"):
        load_model(tmp_path, transformers.ViTConfig(), "fill-mask")
