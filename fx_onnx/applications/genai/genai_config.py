"""The file ``genai_config.json``, which tells onnxruntime-genai how to run a decoder.

Source: "Configuration reference" in the documentation of ONNX Runtime's generate() API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fx_onnx.applications.genai.decoder_interface import DecoderInterface
from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["genai_config", "search_options", "settings", "token_numbers"]

# The options of a search that the GenerationConfig of transformers and onnxruntime-genai share, with equal meaning.
_SEARCH = (
    "diversity_penalty", "do_sample", "early_stopping", "length_penalty", "min_length", "no_repeat_ngram_size",
    "num_beams", "num_return_sequences", "repetition_penalty", "temperature", "top_k", "top_p",
)  # fmt: skip
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
"""The names of the number of positions in configs of transformers."""


def settings(*sources: Any) -> dict[str, Any]:
    """Returns the values of configs, where the first source that has a value wins.

    Args:
        sources: objects with ``to_dict``, mappings, tokenizers with token numbers, or None.

    Raises:
        ArgumentError: a source is none of these.
    """
    values: dict[str, Any] = {}
    for source in reversed(sources):
        if source is not None:
            values.update((name, value) for name, value in _values(source).items() if value is not None)
    return values


def _values(source: Any) -> Mapping[str, Any]:
    text = getattr(source, "get_text_config", None)
    if callable(text):  # the config of a model of images and text has one for its decoder
        return {**source.to_dict(), **text().to_dict()}
    if callable(getattr(source, "to_dict", None)):
        return dict(source.to_dict())
    if isinstance(source, Mapping):
        return source
    if hasattr(source, "eos_token_id"):
        return {name: getattr(source, name, None) for name in _TOKENS}
    raise ArgumentError(f"config and generation_config must be configs of transformers or dicts, not {shown(source)}.")


def genai_config(
    interface: DecoderInterface, filename: str, values: Mapping[str, Any], *, shared_buffer: bool
) -> dict[str, Any]:
    """Returns the content of ``genai_config.json``.

    Args:
        interface: the inputs and outputs of the model.
        filename: the file of the model, beside ``genai_config.json``.
        values: the settings of the model's config and generation config, by transformers' names.
        shared_buffer: whether past and present are one buffer.

    Raises:
        ArgumentError: no setting tells the number of positions or the end of a text.
    """
    length = interface.capacity or _context_length(values)
    inputs: dict[str, str] = {name: name for name in interface.inputs}
    inputs |= {f"past_{role}_names": template for role, template in interface.past.items()}
    outputs = {"logits": interface.logits}
    outputs |= {f"present_{role}_names": template for role, template in interface.present.items()}
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": filename,
        "head_size": interface.head_size,
        "num_key_value_heads": interface.heads,
        "num_hidden_layers": interface.layers,
        "inputs": inputs,
        "outputs": outputs,
        **{name: values[name] for name in ("hidden_size", "num_attention_heads") if isinstance(values.get(name), int)},
    }
    # The type "decoder" means that everything is in this file. The other types are the names of models that
    # onnxruntime-genai knows, and it refuses a name that it does not know.
    kind = "decoder"
    if interface.conv_shape is not None and "recurrent" not in interface.past:
        # Only the type of LFM2 has states of convolutions without those of recurrences.
        kind, (channels, columns) = "lfm2", interface.conv_shape
        layers = ["conv" if layer in interface.conv_layers else "full_attention" for layer in range(interface.layers)]
        decoder |= {"hidden_size": channels, "conv_cache_size": columns, "layer_types": layers}
    model = {
        "type": kind,
        "context_length": length,
        "vocab_size": interface.vocabulary,
        **token_numbers(values),
        "decoder": decoder,
    }
    return {
        "model": model,
        "search": {**search_options(values), "max_length": length, "past_present_share_buffer": shared_buffer},
    }


def search_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a search that transformers and onnxruntime-genai share."""
    return {name: values[name] for name in _SEARCH if isinstance(values.get(name), (bool, int, float))}


def _context_length(values: Mapping[str, Any]) -> int:
    length = next((values[name] for name in _LENGTHS if isinstance(values.get(name), int)), None)
    if length is None:
        raise ArgumentError(
            "onnxruntime-genai needs the largest number of tokens; give save_genai a config with "
            "max_position_embeddings, such as config=model.config.",
            id=MessageId.GENAI_PROGRAM,
        )
    return int(length)


def token_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers of the special tokens; padding takes the number of the end if it has none."""
    numbers = {name: values[name] for name in _TOKENS if values.get(name) is not None}
    if not numbers.get("eos_token_id") and numbers.get("eos_token_id") != 0:
        raise ArgumentError(
            "onnxruntime-genai needs the token that ends a text; give save_genai a config or a tokenizer with "
            "eos_token_id.",
            id=MessageId.GENAI_PROGRAM,
        )
    ends = numbers["eos_token_id"]
    numbers.setdefault("pad_token_id", ends[0] if isinstance(ends, list) else ends)
    return numbers
