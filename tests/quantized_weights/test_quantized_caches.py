"""Caches of 8 and 4 bits: the results are those of the rounded keys and values, in all families and both dtypes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

import fx_onnx
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.program.onnx_program import ONNXProgram
from tests.compare import assert_close
from tests.models.decoders import decoder
from tests.models.rounded_cache import Rounded

TOKENS = torch.randint(3, 300, (20, 2, 12), generator=torch.Generator().manual_seed(0))
TEXTS = [{"input_ids": tokens} for tokens in TOKENS]


def exported(model: Any, **options: Any) -> ONNXProgram:
    arguments = fx_onnx.text_generation_arguments(model, full_cache=True)
    return fx_onnx.export(model, **arguments, **{"target": "onnxruntime-genai", "verbose": False, **options})


def logits(program: ONNXProgram, tokens: Tensor, heads: int, size: int) -> tuple[Tensor, dict[str, Any]]:
    """Returns the logits of all tokens but the last one, then of that one, and the cache."""
    program.save(buffer := io.BytesIO())
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    pasts = [each for each in session.get_inputs() if each.name.startswith("past")]
    dtypes = {"tensor(int8)": np.int8, "tensor(uint8)": np.uint8, "tensor(float)": np.float32}
    cache = {each.name: np.zeros((len(tokens), heads, 0, size), dtypes[each.type]) for each in pasts}
    found, start = [], 0
    for part in (tokens[:, :-1], tokens[:, -1:]):
        length = part.shape[1]
        places = np.arange(start, start + length)[None].repeat(len(tokens), 0)
        mask = np.ones((len(tokens), start + length), np.int64)
        feed = {"input_ids": part.numpy(), "attention_mask": mask, "position_ids": places, **cache}
        names = {each.name for each in session.get_inputs()}
        results = session.run(None, {name: value for name, value in feed.items() if name in names})
        outputs = dict(zip([each.name for each in session.get_outputs()], results, strict=True))
        cache = {name: outputs[f"{name}_out"] for name in cache}
        found.append(torch.from_numpy(outputs["logits"]))
        start += length
    return torch.cat(found, 1), cache


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text", "phi3", "falcon", "gpt_oss", "qwen3"])
def test_results_are_those_of_rounded_keys_and_values(family: str, bits: int) -> None:
    """Windows, softcap, sinks, norms of heads, and one head for all queries."""
    model = decoder(family, layers=1, sliding_window=5)
    quantized = fx_onnx.quantize(exported(model), TEXTS, precision=f"int{bits}-cache", largest_distance=1)
    past = quantized.program.model.graph.inputs[-1]
    assert past.dtype is not None and past.dtype.name == {8: "INT8", 4: "UINT8"}[bits]
    heads, size = (past.shape or ())[1], (past.shape or ())[3]
    assert isinstance(heads, int) and isinstance(size, int)
    found, cache = logits(quantized.program, TOKENS[0], heads, size)
    with torch.no_grad():
        wanted = model(TOKENS[0], past_key_values=Rounded(quantized.program, bits)).logits
    assert_close(found, wanted, 1e-5)
    assert all(array.shape[2] == TOKENS.shape[2] for array in cache.values())


def test_a_program_of_float16() -> None:
    """The scales stay float32."""
    models = decoder("llama", layers=1), decoder("llama", layers=1).half()
    programs = [fx_onnx.quantize(exported(model), TEXTS, precision="int8-cache") for model in models]
    results = [logits(each.program, TOKENS[0], 2, 8)[0] for each in programs]
    assert results[1].dtype == torch.float16
    assert_close(results[1].float(), results[0], 5e-2)


def test_texts_that_set_no_ranges(llama: ONNXProgram) -> None:
    """Of 16 texts, the first 8 tell the distance; the others set the ranges. The given program does not change."""
    before = llama.model_proto.SerializeToString(deterministic=True)
    names = ("past_key_values.0.key_scale", "past_key_values.0.value_scale")
    scales = []
    for texts in (TEXTS[:16], TEXTS[8:16], [{**text, "attention_mask": torch.ones(2, 12)} for text in TEXTS[:16]]):
        found = fx_onnx.quantize(llama, texts, precision="int8-cache", target="onnxruntime-genai")
        weights = found.program.model.graph.initializers
        scales.append([weights[name].const_value.numpy() for name in names])
        assert 0 < found.distance < 0.1 and found.kept == ()
    assert all(np.array_equal(*pair) for other in scales[1:] for pair in zip(scales[0], other, strict=True))
    assert scales[0][0].shape == (1, 2, 1, 8) and scales[0][0].dtype == np.float32
    assert llama.model_proto.SerializeToString(deterministic=True) == before


def test_a_channel_that_is_zero() -> None:
    """It has the scale of the largest one, because later texts may have numbers there."""
    model = decoder("llama", layers=1)
    model.model.layers[0].self_attn.v_proj.weight.data[3] = 0
    graph = fx_onnx.quantize(exported(model), TEXTS, precision="int8-cache").program.model.graph
    scale = graph.initializers["past_key_values.0.value_scale"].const_value.numpy()
    assert scale[0, 0, 0, 3] == scale.max() > 0


@pytest.fixture(scope="module")
def llama() -> ONNXProgram:
    return exported(decoder("llama", layers=1))


@pytest.mark.parametrize(
    ("calibration", "options", "message"),
    [
        ([], {}, "calibration is empty"),
        ([torch.ones(2)], {}, r"calibration\[0\] must be a dict of tensors by the names of inputs, not a Tensor"),
        ([*TEXTS, {}], {}, r"calibration\[20\] must have the inputs input_ids, not none"),
        ([{"input_ids": TOKENS[0], "positions": TOKENS[0]}], {}, "must have the inputs input_ids, not input_ids, pos"),
        ([{"input_ids": TOKENS[0, :, :1]}], {}, "must have two tokens or more"),
        ([{"input_ids": TOKENS[0], "attention_mask": torch.eye(2, 12)}], {}, "has padding; give each text of another"),
        ([{"input_ids": TOKENS[0].int()}], {}, r"The input 'input_ids' must be int64\[batch, sequence\]"),
        (TEXTS, {"ranges": "percentile"}, "The precision int8-cache has ranges of all values; leave out ranges="),
        (TEXTS, {"precision": "int4-cache", "largest_distance": 1e-4}, "are 0.* away, above largest_distance=0.0001"),
        (TEXTS, {"precision": "fp8-cache"}, "The precision 'fp8-cache' is not one of int8-static, a16w8, a16w4, int8-"),
    ],
)
def test_refused(llama: ONNXProgram, calibration: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        fx_onnx.quantize(llama, calibration, **{"precision": "int8-cache", **options})


def test_refused_programs() -> None:
    """A program without GroupQueryAttention, one whose numbers are not finite, and one that is quantized already."""
    model = decoder("llama", layers=1)
    with pytest.raises(ArgumentError, match="no cache that GroupQueryAttention writes; export a decoder with"):
        fx_onnx.quantize(exported(model, target=None), TEXTS, precision="int8-cache")
    quantized = fx_onnx.quantize(exported(model), TEXTS, precision="int8-cache").program
    with pytest.raises(ArgumentError, match="is no input and output of floats of this node alone"):
        fx_onnx.quantize(quantized, TEXTS, precision="int8-cache")
    model.model.layers[0].self_attn.v_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(ArgumentError, match=r"A result, key or value is not finite for calibration\[0\]"):
        fx_onnx.quantize(exported(model), TEXTS, precision="int8-cache")
