"""Tests of the parts of models with an encoder and a decoder, and of tokens that a client generates with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

import fx_onnx
from fx_onnx.applications.encoder_decoder import encoder_decoder
from fx_onnx.applications.export_pretrained import export_pretrained
from fx_onnx.applications.inputs import input_names
from fx_onnx.applications.parts import Part
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.torch_internals.torch_private import pytree
from tests.compare import assert_close
from tests.models.families import FAMILIES

_TOKENS = 8
_CACHE = [f"{part}.{kind}" for part in ("decoder", "encoder") for kind in ("key", "value")]
_T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 50}
_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def _t5() -> Any:
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**_T5, decoder_start_token_id=0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    model.generation_config.eos_token_id = None
    return model


def _generated(folder: Path, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Returns what a client generates: the first past is empty, and later only the decoder's part of it grows."""
    encoder, decoder = (
        onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder_model", "decoder_model_merged")
    )
    states = encoder.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    past = {
        x.name: np.zeros((len(ids), x.shape[1], 0, x.shape[3]), np.float32)
        for x in decoder.get_inputs()
        if "past" in x.name
    }
    names, tokens = [x.name for x in decoder.get_outputs()], np.zeros((len(ids), 1), np.int64)
    for step in range(_TOKENS):
        fixed = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
        found = dict(zip(names, decoder.run(None, {"input_ids": tokens[:, -1:], **fixed, **past}), strict=True))
        new = {name: found[name.replace("past_key_values", "present")] for name in past}
        past |= {name: value for name, value in new.items() if step == 0 or ".decoder." in name}
        assert all(np.array_equal(new[name], past[name]) for name in past)
        logits = found["logits"][:, -1]
        np.put_along_axis(logits, tokens, -np.inf, 1)  # no token twice, so that the text says more
        tokens = np.concatenate([tokens, logits.argmax(-1)[:, None]], 1)
    return tokens


def test_a_client_generates_the_tokens_of_the_model(tmp_path: Path) -> None:
    model = _t5()
    model.save_pretrained(tmp_path / "source")
    files = export_pretrained(tmp_path / "source", tmp_path / "out")
    assert [file.name for file in files] == ["encoder_model.onnx", "decoder_model_merged.onnx"]
    assert all(file.difference is not None and file.difference < 1e-4 for file in files)
    ids = torch.randint(1, 50, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, -3:] = 0
    options = {"max_new_tokens": _TOKENS, "do_sample": False, "no_repeat_ngram_size": 1}
    want = model.generate(input_ids=ids, attention_mask=mask, **options).numpy()
    assert np.array_equal(_generated(tmp_path / "out", ids.numpy(), mask.numpy()), want)


def _parts(model: Any, form: str, **given: torch.Tensor) -> list[Part]:
    return [part for part in encoder_decoder(model, ("logits",), given) if form in part.forms]


@pytest.mark.parametrize("name", ["encoder-decoder", "vision-encoder-decoder", "moonshine", "speech_to_text"])
def test_a_decoder_takes_states_of_any_length_without_a_mask(name: str) -> None:
    """The first past is empty, and all states of the encoder are in the second, unless the decoder keeps none."""
    family = next(each for each in FAMILIES if each.name == name)
    model, ids = replace(family, layers=1).build(), torch.randint(5, 50, (2, 4))  # no special tokens
    sounds = {key: value for key, value in family.inputs(model, 2, family.size).items() if key == "input_features"}
    encoder, decoder = _parts(model, "merged", **sounds)
    program = fx_onnx.export(decoder.module, (), kwargs=decoder.kwargs, dynamic_shapes=decoder.dynamic_shapes)
    inputs = {key: value for key, value in decoder.kwargs.items() if key == "encoder_attention_mask"}
    with torch.no_grad():
        want = model(**encoder.kwargs, decoder_input_ids=ids).logits
        inputs["encoder_hidden_states"] = encoder.module(**encoder.kwargs)["last_hidden_state"]
    old, spec = pytree.tree_flatten(decoder.kwargs["past_key_values"])
    empty = pytree.tree_unflatten([each[:, :, :0] for each in old], spec)
    first, *new = program(input_ids=ids[:, :3], past_key_values=empty, **inputs)
    past = pytree.tree_unflatten(new, spec)
    assert_close(torch.cat([first, program(input_ids=ids[:, 3:], past_key_values=past, **inputs)[0]], 1), want)


def test_two_decoders_give_the_logits_of_the_model_and_share_their_weights(tmp_path: Path) -> None:
    model = _t5()
    model.save_pretrained(tmp_path / "source")
    export_pretrained(tmp_path / "source", tmp_path / "out", layout="optimum-two-decoders", verify=False)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.data")) == [
        *("decoder_model.onnx.data", "encoder_model.onnx.data"),  # the other decoder has no weights of its own
    ]
    encoder, first, later = (
        onnxruntime.InferenceSession(tmp_path / "out" / f"{name}.onnx")
        for name in ("encoder_model", "decoder_model", "decoder_with_past_model")
    )
    ids, tokens = np.arange(2, 18).reshape(2, 8), np.arange(3, 11).reshape(2, 4)
    mask = np.array([[1] * 8, [1] * 5 + [0] * 3])
    states = encoder.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    given = {"input_ids": tokens[:, :3], "encoder_hidden_states": states, "encoder_attention_mask": mask}
    names = [each.name for each in first.get_outputs()]
    found = dict(zip(names, first.run(None, given), strict=True))
    past = {name.replace("present", "past_key_values"): found[name] for name in names[1:]}
    last = later.run(["logits"], {"input_ids": tokens[:, 3:], "encoder_attention_mask": mask, **past})[0]
    with torch.no_grad():
        options = {"attention_mask": torch.from_numpy(mask), "decoder_input_ids": torch.from_numpy(tokens)}
        want = model(input_ids=torch.from_numpy(ids), **options).logits.numpy()
    assert np.allclose(np.concatenate([found["logits"], last], 1), want, atol=1e-4)


def test_names_of_the_other_forms() -> None:
    states, past = ["encoder_hidden_states"], [f"past_key_values.0.{each}" for each in _CACHE]
    _, first, later = _parts(_t5(), "two decoders")
    assert input_names(first.kwargs) == ["input_ids", *states, "encoder_attention_mask"]
    assert input_names(later.kwargs) == ["input_ids", *past, "encoder_attention_mask"]
    assert later.outputs == ("logits", "present.0.decoder.key", "present.0.decoder.value")
    encoder = _parts(_t5(), "cross cache")[1]
    assert encoder.outputs == ("last_hidden_state", "present.0.encoder.key", "present.0.encoder.value")


def test_names() -> None:
    """The order of the inputs is that of the clients."""
    encoder, decoder = _parts(_t5(), "merged")
    assert input_names(encoder.kwargs) == ["input_ids", "attention_mask"] and encoder.outputs == ("last_hidden_state",)
    past = [f"past_key_values.0.{name}" for name in _CACHE]
    assert input_names(decoder.kwargs) == ["input_ids", "encoder_hidden_states", *past, "encoder_attention_mask"]
    assert decoder.outputs == ("logits", *(f"present.0.{name}" for name in _CACHE))


@pytest.mark.parametrize(("decoder", "kinds"), [("gpt2", [""]), ("trocr", ["decoder.", "encoder."])])
def test_a_language_model_has_no_encoder_in_its_past(decoder: str, kinds: list[str]) -> None:
    sizes = {
        "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2},
        "trocr": {"d_model": 16, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16},
    }
    text = transformers.CONFIG_MAPPING[decoder](vocab_size=50, **sizes[decoder])
    vision = transformers.ViTConfig(**_SMALL, image_size=8, patch_size=4)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text)
    parts = _parts(transformers.VisionEncoderDecoderModel(config).eval(), "merged")
    assert [part.name for part in parts] == ["encoder_model", "decoder_model_merged"]
    names = [f"past_key_values.0.{kind}{name}" for kind in kinds for name in ("key", "value")]
    assert input_names(parts[1].kwargs) == ["input_ids", "encoder_hidden_states", *names]
    assert parts[1].dynamic_shapes["encoder_hidden_states"] == {0: "batch", 1: "source"}


def test_other_models_are_refused() -> None:
    bert = transformers.BertModel(transformers.BertConfig(**_SMALL, vocab_size=50)).eval()
    with pytest.raises(ArgumentError, match="no model with an encoder and a decoder"):
        encoder_decoder(bert, ("logits",), {})
    decoder = transformers.BertConfig(**_SMALL, vocab_size=50)
    config = transformers.EncoderDecoderConfig(encoder=bert.config, decoder=decoder)
    with pytest.raises(ArgumentError, match="EncoderDecoderModel has no cross-attention; make its config with"):
        encoder_decoder(transformers.EncoderDecoderModel(config).eval(), ("logits",), {})
