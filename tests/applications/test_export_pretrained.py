"""Tests of the folders for applications: names, numbers, refusals, and the old folder after a failure."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from transformers import (
    BertConfig,
    Dinov2Config,
    Dinov2ForImageClassification,
    LlamaConfig,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    ViTConfig,
    YolosConfig,
    YolosForObjectDetection,
)

import fx_onnx
from fx_onnx.applications.export_pretrained import _exported, _Form, _verified, export_pretrained
from fx_onnx.applications.layouts import LAYOUTS
from fx_onnx.applications.parts import graph
from fx_onnx.applications.precisions import Converted
from fx_onnx.messages.errors import ArgumentError, OnnxExporterWarning
from tests.models.decoders import decoder
from tests.one_capture import equal_parts_once
from tests.torch_versions import needs

_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
_CASES = {
    "AutoModelForSequenceClassification": (BertConfig(**_SMALL, vocab_size=50), ["logits"]),
    "AutoModelForQuestionAnswering": (BertConfig(**_SMALL, vocab_size=50), ["start_logits", "end_logits"]),
    "AutoModelForImageClassification": (ViTConfig(**_SMALL, image_size=8, patch_size=4), ["logits"]),
    "AutoModelForCausalLM": (
        LlamaConfig(**_SMALL, vocab_size=50, num_key_value_heads=1),
        ["logits", "present.0.key", "present.0.value"],
    ),
}


def _source(auto: str, folder: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    model: torch.nn.Module = getattr(transformers, auto).from_config(_CASES[auto][0]).eval()
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return model


@pytest.mark.parametrize("auto", _CASES)
def test_a_task_is_one_file_with_the_names_of_its_client(auto: str, tmp_path: Path) -> None:
    model = _source(auto, tmp_path / "source")
    (file,) = export_pretrained(tmp_path / "source", tmp_path / "out")
    assert file.name == "model.onnx" and file.difference is not None and file.difference < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "out" / file.name)
    assert [each.name for each in session.get_outputs()] == _CASES[auto][1]
    if auto == "AutoModelForCausalLM":
        _assert_continues_from_an_empty_past(session, model)
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"config.json", "tokenizer.json", "model.onnx"}
    assert not any(path.suffix == ".safetensors" for path in (tmp_path / "out").iterdir())


def test_only_an_export_is_replaced(tmp_path: Path) -> None:
    for folder in ("own", "other"):
        (tmp_path / folder).mkdir()
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1)).save(tmp_path / "own" / "model.onnx")
    (tmp_path / "other" / "model.onnx").write_bytes(b"\x08\x0a\x12\x07pytorch")
    for folder, text in (("own", "nowhere"), ("other", "is no export of fx_onnx, so it is not replaced")):
        with pytest.raises(ArgumentError, match=text):
            export_pretrained(tmp_path / "nowhere", tmp_path / folder)


def test_layouts_of_decoders(tmp_path: Path) -> None:
    """transformers.js takes several precisions, with its names of files and dims; genai has a config."""
    pytest.importorskip("torchao")
    _source("AutoModelForCausalLM", tmp_path / "source")
    files = export_pretrained(
        tmp_path / "source", tmp_path / "js", layout="transformers.js", precision=("fp16", "q4", "q8"), verify=False
    )
    names = ["onnx/model_fp16.onnx", "onnx/model_q4.onnx", "onnx/model_quantized.onnx"]
    assert [file.name for file in files] == names
    assert all(0 < file.distance < 0.1 for file in files) and files[1].kept
    for file in files:
        given = onnxruntime.InferenceSession(tmp_path / "js" / file.name).get_inputs()
        assert {value.shape[0] for value in given} == {"batch_size"}
        assert {value.type for value in given if value.name.startswith("past")} == {"tensor(float)"}
    (file,) = export_pretrained(tmp_path / "source", tmp_path / "genai", layout="genai", verify=False)
    assert file.size > 1000 and (tmp_path / "genai" / "genai_config.json").is_file()
    with pytest.raises(ArgumentError, match=r"decides where these weights are; leave out external_data=True"):
        export_pretrained(tmp_path / "source", tmp_path / "o", layout="transformers.js", external_data=True)
    with pytest.raises(ArgumentError, match="one precision, not 2; write one folder for each"):
        export_pretrained(tmp_path / "source", tmp_path / "o", precision=["fp32", "q4"])
    with pytest.raises(ArgumentError, match="q4 needs opset 21 or above, not 18; leave out the opset"):
        export_pretrained(tmp_path / "source", tmp_path / "o", precision="q4", opset_version=18)


def _reader_of_images() -> Any:
    text = LlamaConfig(**_SMALL, vocab_size=320, eos_token_id=2)
    vision = transformers.CLIPVisionConfig(**_SMALL, image_size=8, patch_size=4)
    config = transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_index=300)
    return transformers.LlavaForConditionalGeneration(config)


@pytest.mark.parametrize("build", [partial(decoder, "mamba2", layers=1), _reader_of_images])
def test_genai_takes_states_and_the_decoders_of_readers_of_images(build: Any, tmp_path: Path) -> None:
    with pytest.warns(OnnxExporterWarning, match=r"has no tokenizer\.json|must have the same length"):
        (file,) = export_pretrained(build(), tmp_path / "out", layout="genai")
    assert file.difference is not None and file.difference < 1e-4
    found = json.loads((tmp_path / "out" / "genai_config.json").read_text())["model"]["decoder"]
    names = {value.name for value in onnxruntime.InferenceSession(tmp_path / "out" / file.name).get_inputs()}
    past = [template % 0 for name, template in found["inputs"].items() if name.startswith("past")]
    assert "input_ids" in names and len(past) == 2 and names > {*past}


def _assert_continues_from_an_empty_past(session: onnxruntime.InferenceSession, model: torch.nn.Module) -> None:
    ids = np.arange(1, 6, dtype=np.int64)[None]
    empty = np.zeros((1, 1, 0, 8), np.float32)
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(5)[None]}
    found = session.run(["logits"], {**given, "past_key_values.0.key": empty, "past_key_values.0.value": empty})[0]
    with torch.no_grad():
        assert np.allclose(found, model(torch.from_numpy(ids)).logits.numpy(), atol=1e-5)


def test_wrong_arguments_are_refused_and_the_old_folder_stays(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    _source("AutoModelForSequenceClassification", source)
    out.mkdir()
    (out / "model.onnx").write_text("old fx_onnx")
    wrong = {"task": "text-classificaton", "layout": "optimun", "precision": "fp17"}
    for name, value in wrong.items():
        with pytest.raises(ArgumentError, match=f"The {name} '{value}' is not one of"):
            export_pretrained(source, out, **{name: value})  # type: ignore[arg-type]
    names = {"masked-lm": "fill-mask", "audio-ctc": "automatic-speech-recognition", "pretraining": "feature-extraction"}
    for name, own in {**names, "text-generation-with-past": "text-generation"}.items():
        with pytest.raises(ArgumentError, match=f"The task '{name}' is not one of .*; here it is '{own}'"):
            export_pretrained(source, out, task=name)
    with pytest.raises(ArgumentError, match="The precision 'q8' is not one of"):
        export_pretrained(source, out, layout="optimum", precision="q8")
    with pytest.raises(ArgumentError, match=r"no modules\.json"):
        export_pretrained(source, out, layout="sentence-transformers")
    with pytest.raises(
        ArgumentError, match="No part of the model takes the input 'pixels'; its inputs are input_ids, "
    ):
        export_pretrained(source, out, inputs={"pixels": torch.ones(2, 3)})
    with pytest.raises(ArgumentError, match="has the source in it"):
        export_pretrained(source, source)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "architectures": ["Unknown"]}))
    with pytest.raises(ArgumentError, match="No task builds the architecture Unknown"):
        export_pretrained(source, out)
    assert (out / "model.onnx").read_text() == "old fx_onnx"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"precision": None}, "A name in precision must be a string that is not empty, not None"),
        ({"precision": 16}, "precision must be a sequence of names, not 16"),
        ({"layout": ["optimum"]}, r"The layout \['optimum'\] is not one of"),
        ({"task": ["fill-mask"]}, r"The task \['fill-mask'\] is not one of"),
        ({"inputs": torch.ones(1)}, "inputs must be a dict of tensors by the names of parameters, not a Tensor"),
        ({"inputs": {"input_ids": [[1]]}}, r"The input 'input_ids' must be a tensor, not \[\[1\]\]"),
        ({"adapters": "lora"}, "adapters must be a dict of folders by the names of adapters, not 'lora'"),
        ({"processor": "folder"}, "processor must be a tokenizer or processor of transformers, not 'folder'"),
    ],
)
def test_arguments_of_other_types_are_refused(options: Any, text: str, tmp_path: Path) -> None:
    model = transformers.BertModel(_CASES["AutoModelForQuestionAnswering"][0])
    with pytest.raises(ArgumentError, match=text):
        export_pretrained(model, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_source_is_a_path_or_a_model(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="source, if it is no model and no pipeline, must be a path, not 3"):
        export_pretrained(3, tmp_path / "out")


def test_weights_of_16_bits_become_float32(tmp_path: Path) -> None:
    """A folder is read in the dtype that it has, and a model of the caller stays as it is."""
    model = transformers.BertModel(_CASES["AutoModelForQuestionAnswering"][0]).bfloat16()
    model.save_pretrained(tmp_path / "source")
    for source in (model, tmp_path / "source"):
        (file,) = export_pretrained(source, tmp_path / "out", task="feature-extraction")
        (output,) = onnxruntime.InferenceSession(tmp_path / "out" / file.name).get_outputs()
        assert output.type == "tensor(float)" and model.dtype == torch.bfloat16


def test_a_full_disk_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    _source("AutoModelForSequenceClassification", tmp_path / "source")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.onnx").write_text("old fx_onnx")
    monkeypatch.setattr(fx_onnx.ONNXProgram, "save", full)
    with pytest.raises(ArgumentError, match="No space left"):
        export_pretrained(tmp_path / "source", tmp_path / "out", verify=False)
    assert (tmp_path / "out" / "model.onnx").read_text() == "old fx_onnx"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_a_model_without_a_layer_for_the_precision_is_refused(tmp_path: Path) -> None:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1])
    model = transformers.ResNetForImageClassification(config)
    with pytest.raises(ArgumentError, match="no Linear layer whose inputs are a multiple of 32; choose fp16"):
        export_pretrained(model, tmp_path / "out", precision="q4")
    inputs = {"x": torch.ones(2, 3), "state": torch.zeros(2, 3)}
    with pytest.raises(ArgumentError, match="no Linear layer of several inputs; choose fp16"):
        export_pretrained(_Sum(), tmp_path / "out", task="stream", inputs=inputs, precision="int8")


class _Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + state, x


def test_another_module_needs_its_task(tmp_path: Path) -> None:
    tasks = {None: "_Sum is no model of transformers; give a task of other modules", "strem": "did you mean 'stream'?"}
    for task, message in tasks.items():
        with pytest.raises(ArgumentError, match=re.escape(message)):
            export_pretrained(_Sum(), tmp_path / "out", task=task)


def test_a_model_keeps_its_modes(tmp_path: Path) -> None:
    """Also if the export fails; the parts of a pipeline too."""
    model = _source("AutoModelForSequenceClassification", tmp_path / "source").train()
    model.classifier.eval()
    modes = [module.training for module in model.modules()]
    pipeline = SimpleNamespace(model=model, task="", tokenizer=None)
    export_pretrained(model, tmp_path / "out", verify=False)
    with pytest.raises(ArgumentError):
        export_pretrained(pipeline, tmp_path / "out", inputs={"z": torch.ones(2)})
    assert [module.training for module in model.modules()] == modes


class Noise(torch.nn.Module):
    """Adds random numbers."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Keeps the shape."""
        return {"y": x + torch.rand_like(x)}


class Largest(torch.nn.Module):
    """Selects among equal elements."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns other positions in PyTorch than in ONNX Runtime."""
        return {"y": (x * 0).topk(9).indices}


@pytest.mark.parametrize(("module", "does"), [(Noise(), "draws random numbers"), (Largest(), "selects among equal")])
def test_results_that_may_differ_are_not_compared(module: torch.nn.Module, does: str) -> None:
    part = graph("noise", module, {"x": torch.rand(999)}, {"x": {}})
    program = fx_onnx.export(part.module, kwargs=part.kwargs)
    with pytest.warns(OnnxExporterWarning, match=f"noise {does}.*, so its results were not compared with"):
        assert _verified(program, part, Converted(part.module, (), 0.0, None)) is None


_SEGFORMER: dict[str, Any] = {
    "hidden_sizes": [4] * 4, "depths": [1] * 4, "num_attention_heads": [1] * 4, "decoder_hidden_size": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    "model",
    [
        YolosForObjectDetection(YolosConfig(**_SMALL, image_size=[16, 32], patch_size=4, num_detection_tokens=3)),
        pytest.param(
            Dinov2ForImageClassification(Dinov2Config(**_SMALL, image_size=8, patch_size=4)),
            marks=needs("sizes of images"),
        ),
        pytest.param(SegformerForSemanticSegmentation(SegformerConfig(**_SEGFORMER)), marks=needs("sizes of images")),
    ],
)
def test_images_of_all_sizes_are_taken(model: torch.nn.Module, tmp_path: Path, recwarn: Any) -> None:
    """Also of models whose config has a size, and where a size inside of the model is 1 for the example."""
    given = torch.randn(2, 3, 32, 32) if isinstance(model, SegformerForSemanticSegmentation) else None
    export_pretrained(model.eval(), tmp_path / "out", inputs=given if given is None else {"pixel_values": given})
    assert not [warning for warning in recwarn if issubclass(warning.category, OnnxExporterWarning)]
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    for size in ((32, 32), (48, 40), (64, 96)):
        image = torch.randn(1, 3, *size)
        with torch.no_grad():
            want = model(image).logits
        torch.testing.assert_close(torch.tensor(session.run(["logits"], {"pixel_values": image.numpy()})[0]), want)


def test_a_fixed_size_of_images_is_told(tmp_path: Path) -> None:
    _source("AutoModelForImageClassification", tmp_path / "source")
    with pytest.warns(OnnxExporterWarning, match=r"'height'\) of input 'pixel_values' is static with size 8"):
        export_pretrained(tmp_path / "source", tmp_path / "out", verify=False)


class Sized(torch.nn.Module):
    """Computes something else for images that are wider than 100."""

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        """(batch, 3, height, width) to the same."""
        return {"y": pixel_values * (2 if pixel_values.shape[3] > 100 else 3)}


def test_a_program_of_larger_images_that_is_wrong_for_the_example_is_not_taken() -> None:
    part = graph(
        "model", Sized(), {"pixel_values": torch.ones(2, 3, 8, 8)}, {"pixel_values": {2: "height", 3: "width"}}
    )
    assert part.larger["pixel_values"].shape[2:] == (128, 136)
    with pytest.warns(OnnxExporterWarning, match="correct only where width <= 100"):
        program = _exported(part, _Form(LAYOUTS["optimum"], None, None, True, (), {}, {}), "fp32")
    assert program(**part.kwargs)[0].max() == 3


def _images(count: int) -> list[dict[str, torch.Tensor]]:
    return [{"pixel_values": torch.randn(2, 3, 8, 8)} for _ in range(count)]


@pytest.mark.parametrize("precision", ["int8-static", "a16w8"])
def test_static_quantization(precision: str, tmp_path: Path) -> None:
    """The inputs may come from a generator; the file has integers, and the result tells how far it is from fp32."""
    model = _source("AutoModelForImageClassification", tmp_path / "source")
    calibration = (images for images in _images(4))
    (file,) = export_pretrained(tmp_path / "source", tmp_path / "out", precision=precision, calibration=calibration)
    assert file.kept == () and 0 < file.distance < 0.05 and file.difference is not None
    session = onnxruntime.InferenceSession(tmp_path / "out" / file.name)
    images = torch.randn(3, 3, 8, 8)
    expected = model(images).logits
    found = torch.from_numpy(session.run(None, {"pixel_values": images.numpy()})[0])
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "The precision int8-static needs calibration=, an iterable of inputs by name"),
        (
            {"precision": "fp16", "calibration": _images(1)},
            "calibration= is for cache= and for the precisions int8",
        ),
        ({"calibration": []}, "calibration is empty"),
        ({"calibration": _images(1)[0]}, "calibration must be an iterable of dicts of inputs"),
        ({"calibration": [torch.ones(2)]}, r"calibration\[0\] must be a dict of tensors by the names of inputs"),
        ({"calibration": [{"pixel_values": [1]}]}, "The input 'pixel_values' must be a tensor"),
        ({"calibration": [{"pixels": torch.ones(2)}]}, "No part of the model takes the input 'pixels'"),
        ({"calibration": [*_images(1), {}]}, r"calibration\[1\] lacks pixel_values, an input of the model"),
        ({"calibration": [{"pixel_values": torch.ones(2, 3, 9)}]}, r"calibration\[0\] does not fit"),
        ({"calibration": _images(1), "layout": "transformers.js"}, "The precision 'int8-static' is not one of"),
        ({"calibration": _images(1), "precision": "a16w8", "opset_version": 18}, "needs opset 21 or above, not 18"),
    ],
)
def test_static_quantization_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """One sentence says why, and nothing is written."""
    model = transformers.ViTForImageClassification(ViTConfig(**_SMALL, image_size=8, patch_size=4)).eval()
    with pytest.raises(ArgumentError, match=message):
        export_pretrained(model, tmp_path / "out", **{"precision": "int8-static", **options})
    assert not list(tmp_path.iterdir())


def test_static_quantization_of_a_decoder_is_refused(tmp_path: Path) -> None:
    """Its cache is no tensor that the inputs have."""
    model, inputs = decoder("llama"), {"input_ids": torch.ones(1, 4, dtype=torch.int64)}
    with pytest.raises(ArgumentError, match=r"lacks .*, an input of the decoder; give all inputs, or export the part"):
        export_pretrained(model, tmp_path / "out", precision="int8-static", calibration=[inputs])


_TEXTS = [{"input_ids": torch.randint(3, 99, (1, 16), generator=torch.Generator().manual_seed(0))}]


@pytest.mark.parametrize(("precision", "cache"), [("fp32", "int8"), ("q4", "int8"), ("int8", "int8")])
def test_quantized_cache(precision: str, cache: str, tmp_path: Path) -> None:
    """The config is that of the cache in floats; the distance has that of the weights."""
    pytest.importorskip("torchao", reason="torchao is in the extra 'test'")
    model, options = decoder("llama", layers=1), {"layout": "genai", "precision": precision}
    with equal_parts_once({}):
        (floats,) = export_pretrained(model, tmp_path / "floats", **options)
        (file,) = export_pretrained(model, tmp_path / cache, **options, cache=cache, calibration=_TEXTS)
    assert floats.distance < file.distance < floats.distance + 0.1 and file.difference == floats.difference
    session = onnxruntime.InferenceSession(tmp_path / cache / file.name)
    assert {each.type for each in session.get_inputs() if each.name.startswith("past")} == {"tensor(int8)"}
    configs = [json.loads((tmp_path / name / "genai_config.json").read_text()) for name in ("floats", cache)]
    assert configs[0] == configs[1] and configs[0]["search"]["past_present_share_buffer"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibration": None}, "The cache int8 needs calibration=, an iterable of inputs by name"),
        ({"cache": "fp8"}, "cache must be int8, int4 or None, not 'fp8'"),
        ({"layout": "optimum"}, "cache is for the layout genai; leave it out"),
        ({"precision": "fp16"}, "cache does not go with fp16, in which attention reads a cast of the cache"),
        ({"target": "onnxruntime"}, "The program has no cache that GroupQueryAttention writes"),
        ({"calibration": [{"inputs": torch.ones(1, 4)}]}, "No part of the model takes the input 'inputs'"),
    ],
)
def test_quantized_cache_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"layout": "genai", "cache": "int8", "calibration": _TEXTS, **options}
    with pytest.raises(ArgumentError, match=message):
        export_pretrained(decoder("llama", layers=1), tmp_path / "out", **given)
