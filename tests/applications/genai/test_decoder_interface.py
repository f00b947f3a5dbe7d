"""The inputs and outputs of a decoder, found by their names and shapes."""

from __future__ import annotations

import re
from dataclasses import replace

import onnx
import onnx_ir as ir
import pytest

from fx_onnx.applications.genai.decoder_interface import find_decoder_interface
from fx_onnx.messages.errors import ArgumentError
from tests.applications.genai.decoder_examples import INTERFACE

TOKENS = "int64[b,s] input_ids, int64[b,t] attention_mask, int64[b,s] position_ids"
PAST = "float[b,2,p,8] past.0.key, float[b,2,p,8] past.0.value, float[b,2,p,8] past.1.key, float[b,2,p,8] past.1.value"
PRESENT = PAST.replace("past", "present").replace(",p,", ",q,")
LOGITS = "float[b,s,99] logits"


def model(inputs: str, outputs: str, nodes: str = "") -> ir.Model:
    """Returns a model with these inputs and outputs; nothing needs to compute the outputs."""
    graph = re.sub(r"\.(?!microsoft)", "__", f"({inputs}) => ({outputs}) {{ {nodes} }}")  # the parser takes no dots
    domains = '["" : 24, "com.microsoft" : 1]'
    found = ir.serde.deserialize_model(onnx.parser.parse_model(f"<ir_version: 10, opset_import: {domains}> g {graph}"))
    for value in (*found.graph.inputs, *found.graph.outputs):
        value.name = str(value.name).replace("__", ".")
    return found


def test_a_decoder() -> None:
    expected = replace(INTERFACE, inputs=("input_ids", "attention_mask", "position_ids"))
    assert find_decoder_interface(model(f"{TOKENS}, {PAST}", f"{LOGITS}, {PRESENT}")) == expected


def test_a_quantized_cache() -> None:
    """Two numbers of 4 bits are in a byte. All layers have one dtype."""
    expected = replace(INTERFACE, inputs=("input_ids", "attention_mask", "position_ids"))
    for dtype, size in (("int8", 8), ("uint8", 4)):
        past, present = (text.replace("float", dtype).replace("8]", f"{size}]") for text in (PAST, PRESENT))
        assert find_decoder_interface(model(f"{TOKENS}, {past}", f"{LOGITS}, {present}")) == expected
    past, present = (text.replace("float[b,2,", "int8[b,2,", 2) for text in (PAST, PRESENT))
    with pytest.raises(ArgumentError, match="the layers keep keys and values in different dtypes"):
        find_decoder_interface(model(f"{TOKENS}, {past}", f"{LOGITS}, {present}"))


def test_names_with_other_numbers() -> None:
    past = "float[b,2,p,8] model_1.past_key_values.0.value, float[b,2,p,8] model_1.past_key_values.0.key"
    present = past.replace("value,", "value_out_1,").replace(".key", ".key_out_1")
    found = find_decoder_interface(model(f"{TOKENS}, {past}", f"float16[b,s,99] any, {present}"))
    assert found.past == {role: f"model_1.past_key_values.%d.{role}" for role in ("key", "value")}
    assert found.present == {role: f"model_1.past_key_values.%d.{role}_out_1" for role in ("key", "value")}
    assert found.logits == "any"


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        (LOGITS, None),
        (LOGITS.replace("s", "1", 1), "returns the logits of the last token only, which may be padding"),
    ],
)
def test_prompts_of_different_lengths(outputs: str, reason: str | None) -> None:
    assert find_decoder_interface(model(f"{TOKENS}, {PAST}", f"{outputs}, {PRESENT}")).needs_equal_prompts == reason


def test_prompts_of_different_lengths_need_mask_and_positions() -> None:
    for count, reason in ((2, "has no input position_ids"), (1, "has no input attention_mask")):
        tokens = ", int64".join(TOKENS.split(", int64")[:count])
        found = find_decoder_interface(model(f"{tokens}, {PAST}", f"{LOGITS}, {PRESENT}"))
        assert found.needs_equal_prompts == reason


@pytest.mark.parametrize(
    ("node", "shared"),
    [
        ("present = TensorScatter(past, new, where)", True),
        ("present = com.microsoft.GroupQueryAttention(q, new, new, past, past)", False),  # the past has two readers
        ("present = Concat <axis=2> (past, new)", False),
    ],
)
def test_a_past_that_is_written_in_place(node: str, shared: bool) -> None:
    cache = ", ".join(f"float[b,2,32,8] past.0.{kind}" for kind in ("key", "value"))
    extra = "".join(node.replace("present", f"present.0.{k}").replace("past", f"past.0.{k}") for k in ("key", "value"))
    inputs = f"{TOKENS}, {cache}"
    found = find_decoder_interface(model(inputs, f"{LOGITS}, {cache.replace('past', 'present')}", extra))
    assert (found.writes_in_place, found.capacity) == (shared, 32)


def test_embeddings_stand_for_tokens_and_positions_have_axes() -> None:
    tokens = "float[b,s,8] inputs_embeds, int64[b,t] attention_mask, int64[3,b,s] position_ids"
    found = find_decoder_interface(model(f"{tokens}, {PAST}", f"{LOGITS}, {PRESENT}"))
    assert found.inputs == ("inputs_embeds", "attention_mask", "position_ids")


def test_a_buffer_that_is_written_is_refused() -> None:
    found = model(f"{TOKENS}, {PAST}", f"{LOGITS}, {PRESENT}, float[b] calls_out")
    found.graph.outputs[-1].metadata_props["pkg.torch.export.graph_signature.OutputSpec.kind"] = "BUFFER_MUTATION"
    with pytest.raises(ArgumentError, match="it writes the buffer 'calls', which would not be kept"):
        find_decoder_interface(found)


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        ("float[b,8] x", "float[b,8] y", "it has no inputs for keys and values"),
        (f"{TOKENS}, {PAST}", LOGITS, "it has no outputs for keys and values"),
        (
            f"{TOKENS}, {PAST}",
            f"{LOGITS}, {PRESENT[: PRESENT.index(', float[b,2,q,8] present.1')]}",
            "returns that of 1",
        ),
        (PAST, f"{LOGITS}, {PRESENT}", "no input is named input_ids"),
        (f"int64[b,6] input_ids, {PAST}", f"{LOGITS}, {PRESENT}", "input_ids has the static length 6"),
        (f"float[b,s] input_ids, {PAST}", f"{LOGITS}, {PRESENT}", "input_ids is not a matrix of integers"),
        (f"float[b,s] inputs_embeds, {PAST}", f"{LOGITS}, {PRESENT}", "inputs_embeds is not floats"),
        (f"float[b,3,8] inputs_embeds, {PAST}", f"{LOGITS}, {PRESENT}", "inputs_embeds has the static length 3"),
        (f"{TOKENS}, {PAST.replace(',p,', ',w,', 1)}", f"{LOGITS}, {PRESENT}", r"different numbers of tokens \(p, w\)"),
        (
            f"{TOKENS}, {PAST.replace(',2,p', ',h,p')}",
            f"{LOGITS}, {PRESENT}",
            "of heads of 'past.0.key' are not static",
        ),
        (f"{TOKENS}, {PAST}", f"float[b,s,v] logits, {PRESENT}", "the size of the vocabulary"),
        (f"{TOKENS}, {PAST}", PRESENT, "it has no output of logits"),
        (f"{TOKENS}, {PAST}, float[b,3] pixels", f"{LOGITS}, {PRESENT}", "gives no value to the input 'pixels'"),
        (
            f"{TOKENS}, {PAST}, int64[] past.0.cumulative_length",
            f"{LOGITS}, {PRESENT}",
            "number of tokens that a layer",
        ),
    ],
)
def test_a_model_that_does_not_fit(inputs: str, outputs: str, reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason) as caught:
        find_decoder_interface(model(inputs, outputs))
    assert "fx_onnx.text_generation_arguments(model, full_cache=True)" in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (PAST.replace("p,8", "p,4", 1), "keys and values have different numbers or sizes of heads. "),
        (f"float[b,4,3] past.0.conv_states.0, {PAST}", "takes the cache of 2 layers, but returns that of 2"),
        (f"{PAST}, float[b,p,4] past.1.indexer_keys", "'past.1.indexer_keys' is the cache of an indexer"),
    ],
)
def test_a_cache_that_does_not_fit(inputs: str, reason: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(reason)):
        find_decoder_interface(model(f"{TOKENS}, {inputs}", f"{LOGITS}, {PRESENT}"))


def test_layers_with_other_heads() -> None:
    past, present = (text.replace("2", "4", 1).replace("2", "4", 1).replace("8", "5", 2) for text in (PAST, PRESENT))
    found = find_decoder_interface(model(f"{TOKENS}, {past}", f"{LOGITS}, {present}"))
    assert (found.layers, found.heads, found.head_size) == (2, 4, 5)


STATES = {
    "lfm2": "float[b,6,3] past.0.conv_states.0, float[b,2,p,8] past.2.key, float[b,2,p,8] past.2.value",
    "mamba": "float[b,6,4] past.0.conv_states.0, float[b,6,16] past.0.recurrent_states.0",
    "minimax": "float[b,4,8,8] past.linear_cache.0, float[b,2,p,8] past.1.key, float[b,2,p,8] past.1.value",
}


@pytest.mark.parametrize(
    ("name", "past", "layers"),
    [
        ("lfm2", {"conv": "past.%d.conv_states.0", "key": "past.%d.key", "value": "past.%d.value"}, 3),
        ("mamba", {"conv": "past.%d.conv_states.0", "recurrent": "past.%d.recurrent_states.0"}, 1),
        ("minimax", {"recurrent": "past.linear_cache.%d", "key": "past.%d.key", "value": "past.%d.value"}, 2),
    ],
)
def test_layers_with_states(name: str, past: dict[str, str], layers: int) -> None:
    present = STATES[name].replace("past", "present").replace(",p,", ",q,")
    found = find_decoder_interface(model(f"{TOKENS}, {STATES[name]}", f"{LOGITS}, {present}"))
    assert (found.past, found.layers, found.writes_in_place) == (past, layers, False)
    assert found.needs_equal_prompts == "has layers with a state, which the padding of a prompt changes"


def test_two_states_of_a_convolution_in_a_layer_are_refused() -> None:
    past = f"{STATES['mamba']}, float[b,6,4] past.0.conv_states.1"
    with pytest.raises(ArgumentError, match=r"gives no value to the input 'past\.0\.conv_states\.1'"):
        find_decoder_interface(model(f"{TOKENS}, {past}", f"{LOGITS}, {past.replace('past', 'present')}"))
