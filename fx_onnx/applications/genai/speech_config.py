"""The configs of Whisper: an encoder that computes the cross cache, a decoder that takes it, and features of sounds.

Source: "Configuration reference" in the documentation of ONNX Runtime's generate() API, and the names that
onnxruntime-genai 0.18 reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fx_onnx.applications.genai.genai_config import search_options, settings, token_numbers
from fx_onnx.files.destination import write_json
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["write_speech_config"]


def write_speech_config(folder: Path, *, config: Any, generation_config: Any, extractor: Any = None) -> None:
    """Writes ``genai_config.json`` beside ``encoder.onnx`` and ``decoder.onnx``, and ``audio_processor_config.json``.

    Args:
        folder: where.
        config: the config of the model.
        generation_config: the same for the search.
        extractor: a WhisperFeatureExtractor; None writes no ``audio_processor_config.json``.

    Raises:
        ArgumentError: the model is no Whisper, the only one of its kind that onnxruntime-genai runs.
    """
    values = settings(generation_config, config)
    if values.get("model_type") != "whisper":
        raise ArgumentError(
            f"onnxruntime-genai runs no {values.get('model_type')}: of the models with an encoder and a decoder, it "
            "runs Whisper; choose another layout.",
            id=MessageId.GENAI_PROGRAM,
        )
    kinds = ("key", "value")
    decoder = {
        "inputs": {
            "input_ids": "input_ids",
            **{f"past_{kind}_names": f"past_key_values.%d.decoder.{kind}" for kind in kinds},
            **{f"cross_past_{kind}_names": f"past_key_values.%d.encoder.{kind}" for kind in kinds},
        },
        "outputs": {"logits": "logits", **{f"present_{kind}_names": f"present.%d.decoder.{kind}" for kind in kinds}},
    }
    encoder = {
        "inputs": {"audio_features": "audio_features"},
        "outputs": {
            "encoder_hidden_states": "last_hidden_state",
            **{f"cross_present_{kind}_names": f"present.%d.encoder.{kind}" for kind in kinds},
        },
    }
    length = values["max_target_positions"]
    model = {
        "type": "whisper",
        "context_length": length,
        "vocab_size": values["vocab_size"],
        **token_numbers(values),
        **{name: _part(name, values) | part for name, part in {"encoder": encoder, "decoder": decoder}.items()},
    }
    search = {**search_options(values), "max_length": length, "past_present_share_buffer": False}
    write_json(folder / "genai_config.json", {"model": model, "search": search})
    if extractor is not None:
        write_json(folder / "audio_processor_config.json", _features(extractor))


def _features(extractor: Any) -> dict[str, Any]:
    """Returns the operations from the bytes of a file with sound to the logarithms of a mel spectrogram."""
    sizes = {"n_fft": extractor.n_fft, "hop_length": extractor.hop_length}
    mel = {"n_mel": extractor.feature_size, "chunk_size": extractor.chunk_length}
    operations = {
        "AudioDecoder": {"target_sample_rate": extractor.sampling_rate},
        "STFTNorm": {**sizes, "frame_length": extractor.n_fft},
        "LogMelSpectrum": {**sizes, **mel},
    }
    rows = [{"operation": {"name": name, "type": name, "attrs": attrs}} for name, attrs in operations.items()]
    return {"feature_extraction": {"sequence": rows}}


def _part(name: str, values: dict[str, Any]) -> dict[str, Any]:
    heads, size = values[f"{name}_attention_heads"], values["d_model"]
    return {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": f"{name}.onnx",
        "head_size": size // heads,
        "hidden_size": size,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "num_hidden_layers": values[f"{name}_layers"],
    }
