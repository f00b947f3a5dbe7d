"""Tests of what is read from a folder of save_pretrained."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import transformers

from fx_onnx.applications.source import find_row, load_config, named_class, read_source
from fx_onnx.messages.errors import ArgumentError, OnnxExporterWarning
from fx_onnx.messages.progress import hide_progress

_SMALL = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50,
}  # fmt: skip


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
        assert find_row(transformers.BertConfig(), None, architecture)[0] == task
    assert find_row(transformers.CLIPConfig(), None, "CLIPModel")[0] == "zero-shot-image-classification"
    assert find_row(transformers.BartConfig(), None, "BartForConditionalGeneration")[0] == "text2text-generation"


def test_a_row_is_that_of_the_architecture_or_the_first_that_fits() -> None:
    for config, auto in ((transformers.WhisperConfig(), "SpeechSeq2Seq"), (transformers.Wav2Vec2Config(), "CTC")):
        assert find_row(config, "automatic-speech-recognition", None)[1].auto == f"AutoModelFor{auto}"
    for config, method in ((transformers.CLIPConfig(), "get_image_features"), (transformers.ViTConfig(), "")):
        assert find_row(config, "image-feature-extraction", None)[1].method == method


def test_a_task_that_the_type_lacks_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no vit model for the task 'fill-mask'; its tasks are"):
        find_row(transformers.ViTConfig(), "fill-mask", None)


def test_weights_that_the_folder_lacks_are_named(tmp_path: Path) -> None:
    transformers.BertForMaskedLM(transformers.BertConfig(**_SMALL)).save_pretrained(tmp_path)
    lacking = r"no values for the weights qa_outputs\.bias, qa_outputs\.weight of BertForQuestionAnswering.* are random"
    with pytest.warns(OnnxExporterWarning, match=lacking):
        read_source(tmp_path, "question-answering", None, False)


def test_code_of_a_folder_runs_only_if_it_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import transformers\n"
        "class OwnConfig(transformers.BertConfig):\n    model_type = 'own'\n"
        "class OwnModel(transformers.BertForMaskedLM):\n    config_class = OwnConfig\n"
    )
    maps = {"AutoConfig": "own.OwnConfig", "AutoModelForMaskedLM": "own.OwnModel"}
    transformers.BertForMaskedLM(transformers.BertConfig(**_SMALL)).save_pretrained(tmp_path)
    place = tmp_path / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "model_type": "own", "auto_map": maps}))
    with pytest.raises(ArgumentError, match="trust_remote_code"):
        read_source(tmp_path, "fill-mask", None, False)
    source = read_source(tmp_path, "fill-mask", None, True)
    assert type(source.model).__name__ == "OwnModel" and source.row.auto == "AutoModelForMaskedLM"


def test_a_pipeline_has_its_model_and_processors() -> None:
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**_SMALL)).train()
    pipeline = SimpleNamespace(model=model, task="text-classification", tokenizer="tokens", feature_extractor=None)
    source = read_source(pipeline, None, None, False)
    assert source.model is model and source.task == "text-classification" and source.processors == ("tokens",)
    assert not model.training and source.folder is None


@pytest.mark.parametrize("named", [None, [], [0.5], [{}], {"a": 1}, "Bert"])
def test_a_config_that_names_no_class_is_refused(named: object) -> None:
    with pytest.raises(ArgumentError, match="names no class of transformers"):
        named_class(SimpleNamespace(architectures=named))


def test_a_pipeline_of_diffusers_has_one_task(tmp_path: Path) -> None:
    pipeline = SimpleNamespace(components={}, save_config=None)
    assert read_source(pipeline, None, None, False).task == "diffusion"
    with pytest.raises(ArgumentError, match="is a pipeline of diffusers, which has one task; leave out the task"):
        read_source(pipeline, "fill-mask", None, False)


def test_a_processor_that_cannot_be_loaded_is_a_warning(tmp_path: Path) -> None:
    config = transformers.BertConfig(**_SMALL, architectures=["BertForMaskedLM"])
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.warns(OnnxExporterWarning, match="cannot load the processor of .*derived from the config instead"):
        assert read_source(tmp_path, None, None, False).processors == ()


def test_bars_of_transformers_are_hidden_with_those_of_an_export(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    transformers.BertForMaskedLM(transformers.BertConfig(**_SMALL)).save_pretrained(tmp_path)
    capfd.readouterr()
    with hide_progress():
        read_source(tmp_path, None, None, False)
    assert not capfd.readouterr().err
    read_source(tmp_path, None, None, False)
    assert "Loading weights" in capfd.readouterr().err


def test_classes_that_cannot_be_imported_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers.BertForMaskedLM(transformers.BertConfig(**_SMALL)).save_pretrained(tmp_path)
    error = ModuleNotFoundError("Could not import module 'BertForMaskedLM'.")
    error.__cause__ = RuntimeError("operator torchvision::nms does not exist")
    monkeypatch.setattr("fx_onnx.applications.source._classes_of", Mock(side_effect=error))
    with pytest.raises(
        ArgumentError, match=r"Could not import module .*: RuntimeError: operator torchvision::nms does"
    ):
        read_source(tmp_path, None, None, False)
