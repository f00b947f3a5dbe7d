"""Models of transformers from a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

import fx_onnx
from fx_onnx.cli.model_sources import load

SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 99}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    config = transformers.LlamaConfig(num_key_value_heads=1, **SIZES)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_a_decoder_with_past(llama: Path) -> None:
    source = load(f"hf:{llama}", task="text-generation", with_past=True)
    program = fx_onnx.export(source.model, (), kwargs=source.kwargs, dynamic_shapes=source.dynamic_shapes)
    names = [value.name for value in program.model.graph.inputs]
    cached = ["past_key_values.0.key", "past_key_values.0.value"]
    assert names == ["input_ids", "attention_mask", "position_ids", *cached]
    cache = transformers.DynamicCache(config=source.model.config)
    cache.update(torch.zeros(1, 1, 0, 8), torch.zeros(1, 1, 0, 8), 0)
    inputs = {"input_ids": torch.tensor([[1, 2, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)}
    expected = source.model(**inputs).logits
    inputs["position_ids"] = torch.tensor([[0, 1, 2]])
    torch.testing.assert_close(program(**inputs, past_key_values=cache)[0], expected, rtol=1e-4, atol=1e-5)


def test_the_class_in_the_config_is_the_default(llama: Path) -> None:
    source = load(f"hf:{llama}", task=None, with_past=False)
    assert type(source.model).__name__ == "LlamaForCausalLM"
    assert list(source.kwargs) == ["input_ids", "attention_mask", "use_cache"]
    assert not source.model.training


def test_an_encoder_has_token_types(tmp_path: Path) -> None:
    transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES)).save_pretrained(tmp_path)
    source = load(f"hf:{tmp_path}", task="text-classification", with_past=False)
    assert list(source.kwargs) == ["input_ids", "attention_mask", "token_type_ids"]


def test_a_vision_model(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    source = load(f"hf:{tmp_path}", task=None, with_past=False)
    assert source.kwargs["pixel_values"].shape == (2, 3, 8, 8)


def test_wrong_requests_are_refused(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(fx_onnx.ArgumentError, match=r"The task 'sing' is not one of text2text-generation, "):
        load(f"hf:{llama}", task="sing", with_past=False)
    with pytest.raises(fx_onnx.ArgumentError, match=r"did you mean 'text-generation'\?"):
        load(f"hf:{llama}", task="text-generatio", with_past=False)
    for task in ("image-classification", "fill-mask"):
        with pytest.raises(fx_onnx.ArgumentError) as refused:
            load(f"hf:{llama}", task=task, with_past=False)
        assert str(refused.value) == (
            f"transformers has no llama model for the task {task!r}; its tasks are question-answering, "
            "text-classification, text-generation, multi-token-prediction, token-classification, feature-extraction, "
            "image-feature-extraction, sentence-similarity. [fx-onnx explain FX1020]"
        )
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    with pytest.raises(fx_onnx.ArgumentError, match="transformers cannot load"):
        load(f"hf:{tmp_path}", task=None, with_past=False)


@pytest.mark.parametrize(
    "name", ["transformers.LlamaForCausalLM.from_pretrained", "fx_onnx.applications.source.named_class"]
)
def test_a_class_that_transformers_cannot_import(name: str, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        reason = RuntimeError("operator torchvision::nms does not exist")
        raise ModuleNotFoundError("Could not import ViT.\nMore.") from reason

    monkeypatch.setattr(name, broken)
    text = r"cannot load .*: ModuleNotFoundError: Could not import ViT.: RuntimeError: .*; install the torchvision of"
    with pytest.raises(fx_onnx.ArgumentError, match=text):
        load(f"hf:{llama}", task=None, with_past=False)
