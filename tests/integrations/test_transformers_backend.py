"""The backend of transformers' exporters: it is found by its format, and its folders load as transformers' own do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers.exporters", reason="transformers 5.20 or newer is not installed")

from transformers.exporters import (
    AutoHfExporter,
    ExportedModel,
    OnnxConfig,
    OnnxRuntimeDynamicConfig,
    OnnxRuntimeQuantizer,
)

import fx_onnx
from fx_onnx.integrations.transformers_backend import FORMAT, FxOnnxConfig
from tests.models.families import FAMILIES

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}


def _llama() -> tuple[Any, dict[str, torch.Tensor]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)).eval()
    return model, {"input_ids": torch.randint(0, 99, (2, 7)), "attention_mask": torch.ones(2, 7, dtype=torch.int64)}


def test_a_folder_loads_as_one_of_transformers(tmp_path: Path) -> None:
    model, inputs = _llama()
    exporter = AutoHfExporter.from_config({"export_format": FORMAT})
    exported = exporter.export(model, dict(inputs), config=FxOnnxConfig(dynamic=True, opset_version=18, verify=True))
    assert exported.program.producer_name == "fx_onnx"
    assert exported.program.opset_imports[""] == 18
    exported.save_pretrained(tmp_path)
    loaded = ExportedModel.from_pretrained(tmp_path)
    assert loaded.export_format == "onnx"
    longer = {name: torch.cat([value, value], 1) for name, value in inputs.items()}
    for given in (inputs, longer):
        torch.testing.assert_close(loaded(**given).logits, model(**given).logits.detach())


def test_a_decoder_in_two_graphs() -> None:
    model, inputs = _llama()
    exporter = AutoHfExporter.from_config(FxOnnxConfig())
    exported = exporter.export_for_generation(model, dict(inputs), config=FxOnnxConfig(dynamic=True))
    assert sorted(exported.components) == ["decode", "prefill"]
    assert all(part.program.producer_name == "fx_onnx" for part in exported.components.values())


def test_fusions_of_transformers() -> None:
    model, inputs = _llama()
    exporter = AutoHfExporter.from_config(FxOnnxConfig())
    exported = exporter.export(model, dict(inputs), config=FxOnnxConfig(dynamic=True, ort_fusions="cpu"))
    operators = [node.op_type for node in exported.program.graph]
    assert (operators.count("GroupQueryAttention"), operators.count("SkipSimplifiedLayerNormalization")) == (1, 2)
    torch.testing.assert_close(exported(**inputs).logits, model(**inputs).logits.detach(), rtol=1e-4, atol=1e-4)


def test_quantizers_of_transformers_take_the_model() -> None:
    model, inputs = _llama()
    quantizer = OnnxRuntimeQuantizer(OnnxRuntimeDynamicConfig())
    exporter = AutoHfExporter.from_config(FxOnnxConfig())
    exported = exporter.export(model, dict(inputs), config=FxOnnxConfig(dynamic=True, quantizer=quantizer))
    assert any("Integer" in node.op_type or "Quantize" in node.op_type for node in exported.program.graph)
    assert torch.nn.functional.cosine_similarity(
        exported(**inputs).logits.flatten(), model(**inputs).logits.flatten(), dim=0
    ).item() == pytest.approx(1, abs=0.05)


def test_options_are_checked() -> None:
    model, inputs = _llama()
    exporter = AutoHfExporter.from_config(FxOnnxConfig())
    with pytest.raises(fx_onnx.ArgumentError, match="opset_version"):
        exporter.export(model, dict(inputs), config=FxOnnxConfig(opset_version=99))
    with pytest.raises(ValueError, match="ort_fusions"):
        FxOnnxConfig(ort_fusions="gpu")
    with pytest.raises(fx_onnx.ArgumentError, match="'openvino'"):
        FxOnnxConfig(ort_fusions="cpu", target="openvino")


@pytest.mark.parametrize("name", ["bart", "vit", "clip"])
def test_encoders_and_images(name: str) -> None:
    family = next(family for family in FAMILIES if family.name == name)
    module = family.build()
    inputs = {key: value for key, value in family.examples(module)[0].items() if key != "use_cache"}
    exported = AutoHfExporter.from_config(FxOnnxConfig()).export(module, dict(inputs), config=FxOnnxConfig())
    with torch.no_grad():
        wanted = module(**inputs)
    got = exported(**inputs)
    for key in ("logits", "last_hidden_state", "logits_per_image"):
        if getattr(wanted, key, None) is not None:
            torch.testing.assert_close(got[key], wanted[key], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["StaticCache", "DynamicCache"])
def test_a_cache_that_the_model_writes_and_returns_has_one_output(kind: str) -> None:
    """transformers registers the class of the cache, and captures; the new values are those that torch.onnx returns."""
    import transformers

    model, inputs = _llama()
    cache: Any = getattr(transformers, kind)(config=model.config, **({"max_cache_len": 16} if kind[0] == "S" else {}))
    with torch.no_grad():
        expected = model(**inputs, past_key_values=cache)
    given = {"input_ids": inputs["input_ids"][:, :1], "past_key_values": cache, "use_cache": True}
    exporter = AutoHfExporter.from_config({"export_format": "onnx"})
    with fx_onnx.replacing_torch_onnx():
        program: Any = exporter.export(model, given, config=OnnxConfig()).program
    names = [value.name for value in program.graph.outputs]
    assert len(expected.past_key_values.layers) == 1
    assert len(names) == (4 if kind == "StaticCache" else 3), names
