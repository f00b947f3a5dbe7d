"""The folder that onnxruntime-genai runs. The tests of texts need the real package."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fx_onnx
from tests.models.decoders import LINES, PADDING, decoder, tokenizer
from tests.models.rounded_cache import Rounded


def exported(model: Any, *, target: str | None = None, **options: Any) -> fx_onnx.ONNXProgram:
    arguments = fx_onnx.text_generation_arguments(model, full_cache=True, **options)
    return fx_onnx.export(model, **arguments, target=target)


@pytest.fixture(scope="module")
def llama() -> tuple[Any, fx_onnx.ONNXProgram]:
    model = decoder("llama")
    return model, exported(model)


def test_the_files(llama: tuple[Any, fx_onnx.ONNXProgram], tmp_path: Path) -> None:
    model, program = llama
    program.save_genai(tmp_path / "new", config=model.config, tokenizer=tokenizer())
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        "model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    content = json.loads((tmp_path / "new" / "genai_config.json").read_text())
    assert content["model"]["decoder"]["inputs"]["past_key_names"] == "past_key_values.%d.key"
    assert content["model"]["decoder"]["outputs"]["present_key_names"] == "past_key_values.%d.key_out"
    program.save_genai(tmp_path / "copy", config=model.config, tokenizer=tmp_path / "new", external_data=False)
    assert (tmp_path / "copy" / "tokenizer.json").read_bytes() == (tmp_path / "new" / "tokenizer.json").read_bytes()
    assert not (tmp_path / "copy" / "model.onnx.data").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": None}, "needs the largest number of tokens"),
        ({"shared_buffer": True}, "Past and present cannot share a buffer"),
        ({"shared_buffer": 1}, "shared_buffer must be True, False or None"),
        ({"tokenizer": 3}, "tokenizer must be a tokenizer of transformers or a folder, not 3"),
        ({"tokenizer": "nowhere"}, "'nowhere' has no files of a tokenizer"),
    ],
)
def test_a_refusal_writes_nothing(
    llama: tuple[Any, fx_onnx.ONNXProgram], tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    model, program = llama
    with pytest.raises(fx_onnx.ArgumentError, match=message):
        program.save_genai(tmp_path / "new", **{"config": model.config, **options})
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_needs_equal_prompts_is_a_warning(tmp_path: Path) -> None:
    model = decoder("llama")
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="must have the same length, because the program returns the"):
        exported(model, logits_to_keep=1).save_genai(tmp_path, config=model.config)


def test_a_model_with_sliding_windows_needs_equal_prompts(
    llama: tuple[Any, fx_onnx.ONNXProgram], tmp_path: Path
) -> None:
    model, program = llama
    for extra in ({"sliding_window": 8}, {"layer_types": ["full_attention", "sliding_attention"]}):
        with pytest.warns(fx_onnx.OnnxExporterWarning, match="has sliding windows, which count padding as tokens"):
            program.save_genai(tmp_path, config={**model.config.to_dict(), "layer_types": None, **extra})


# ---------------------------------------------------------------- with the real package


needs_genai = pytest.mark.skipif(find_spec("onnxruntime_genai") is None, reason="onnxruntime-genai is not installed")


def texts(folder: Path, prompts: list[list[int]], length: int) -> list[list[int]]:
    """Returns the greedy continuations of a batch of prompts up to ``length`` tokens, without the prompts."""
    import onnxruntime_genai as genai

    parameters = genai.GeneratorParams(loaded := genai.Model(str(folder)))
    parameters.set_search_options(max_length=length, batch_size=len(prompts), do_sample=False)
    generator, longest = genai.Generator(loaded, parameters), max(map(len, prompts))
    rows = [[*prompt, *[PADDING] * (longest - len(prompt))] for prompt in prompts]  # it pads on the right
    generator.append_tokens(np.array(rows if len(rows) > 1 else rows[0], dtype=np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [[int(token) for token in generator.get_sequence(row)][longest:] for row in range(len(prompts))]


def expected_texts(model: Any, prompts: list[list[int]], length: int) -> list[list[int]]:
    """Returns what ``generate`` of transformers returns, which pads on the left."""
    longest = max(map(len, prompts))
    rows = torch.tensor([[*[PADDING] * (longest - len(prompt)), *prompt] for prompt in prompts])
    with torch.no_grad():
        found = model.generate(rows, attention_mask=(rows != PADDING).long(), max_length=length, do_sample=False)
    return [row[longest:].tolist() for row in found]


@needs_genai
def test_texts_are_those_of_transformers(llama: tuple[Any, fx_onnx.ONNXProgram], tmp_path: Path) -> None:
    import onnxruntime_genai as genai

    model, program = llama
    program.save_genai(tmp_path, config=model.config, generation_config=model.generation_config, tokenizer=tokenizer())
    tokens = [tokenizer()(line).input_ids for line in LINES]
    found = genai.Tokenizer(genai.Model(str(tmp_path)))
    assert [found.encode(line).tolist() for line in LINES] == tokens
    assert found.decode(tokens[0]) == LINES[0]
    for prompts in ([tokens[0]], [tokens[0], tokens[1][:4]]):
        length = max(map(len, prompts)) + 64
        assert texts(tmp_path, prompts, length) == expected_texts(model, prompts, length)


@needs_genai
def test_windows_are_those_of_transformers(tmp_path: Path) -> None:
    model = decoder("gemma2", sliding_window=8)
    exported(model).save_genai(tmp_path, config=model.config)
    prompt = [[*range(20, 33)]]
    assert texts(tmp_path, prompt, 77) == expected_texts(model, prompt, 77)


@needs_genai
@pytest.mark.parametrize("bits", [8, 4])
def test_texts_of_a_quantized_cache(bits: int, tmp_path: Path) -> None:
    """They are those of the rounded keys and values, for one prompt and for two that are padded on the right."""
    model = decoder("llama")
    program = exported(model, target="onnxruntime-genai")
    texts_of = [{"input_ids": torch.randint(3, 300, (1, 24))} for _ in range(4)]
    result = fx_onnx.quantize(program, texts_of, precision=f"int{bits}-cache", largest_distance=1)
    result.program.save_genai(tmp_path, config=model.config)
    for prompts in ([[*range(20, 33)]], [[*range(20, 33)], [*range(50, 57)]]):
        wanted = []
        for prompt in prompts:
            tokens, new = torch.tensor([prompt]), 20 + max(map(len, prompts)) - len(prompt)
            options = {"past_key_values": Rounded(result.program, bits), "max_new_tokens": new, "do_sample": False}
            with torch.no_grad():
                wanted.append(model.generate(tokens, **options)[0, len(prompt) :].tolist()[:20])
        found = texts(tmp_path, prompts, 20 + max(map(len, prompts)))
        assert [text[: len(tokens)] for text, tokens in zip(found, wanted, strict=True)] == wanted


@needs_genai
@pytest.mark.parametrize("family", ["mamba2", "lfm2"])
def test_texts_of_recurrent_models_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    """LFM2 has only the states of convolutions, beside attention."""
    model = decoder(family, **({"layer_types": ["conv", "full_attention"]} if family == "lfm2" else {}))
    program = fx_onnx.export(model, **fx_onnx.text_generation_arguments(model))
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="must have the same length, because the program has layers"):
        program.save_genai(tmp_path, config=model.config, generation_config=model.generation_config)
    prompt = [[*range(20, 33)]]
    assert texts(tmp_path, prompt, 77) == expected_texts(model, prompt, 77)
