"""Small models of the families that read images in onnxruntime-genai, their image processors and tokenizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers.convert_slow_tokenizer import bytes_to_unicode

__all__ = ["IMAGE", "READERS", "SOUND", "Reader", "build", "tokenizer"]

IMAGE, SOUND = 300, 303
_TEXT = {
    "vocab_size": 400, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_WINDOWS = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
_VISION = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_TOKENS = {
    "gemma3": ("<image_soft_token>", "<start_of_image>", "<end_of_image>"),
    "gemma4": ("<|image|>", "<|image>", "<image|>", "<|audio|>", "<|audio>", "<audio|>"),
    "mistral3": ("[IMG]", "[IMG_BREAK]", "[IMG_END]", "[INST]"),
    "qwen": ("<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"),
}


class Reader(NamedTuple):
    """A family.

    Attributes:
        config: returns the config of the model.
        processor: returns its image processor.
        tokens: the key of its special tokens, which begin at ``IMAGE``.
        mark: the text that stands for an image in a prompt.
        sizes: the heights and widths of two images.
        types: the parameter that tells transformers which tokens are images, if there is one.
        sound: the text that stands for a sound in a prompt, if the model takes one.
    """

    config: Callable[[], Any]
    processor: Callable[[], Any]
    tokens: str
    mark: str
    sizes: tuple[tuple[int, int], ...] = ((32, 48), (24, 16))
    types: str = "mm_token_type_ids"
    sound: str = ""


def _gemma3() -> Any:
    vision = transformers.SiglipVisionConfig(**_VISION, image_size=32, patch_size=2)
    text = transformers.Gemma3TextConfig(**_TEXT, **_WINDOWS)
    tokens = {"image_token_index": IMAGE, "boi_token_index": 301, "eoi_token_index": 302}
    return transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=256, **tokens)


_SOUND = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "subsampling_conv_channels": [32, 4],
    "output_proj_dims": 24, "attention_chunk_size": 3, "attention_context_left": 4,
}  # fmt: skip


def _gemma4(audio: dict[str, Any] | None = None, **text: Any) -> Any:
    layers = {"vocab_size_per_layer_input": 400, "num_kv_shared_layers": 0, "global_head_dim": 8, **text}
    sizes = {"num_key_value_heads": 2, "head_dim": 8, "patch_size": 4, "position_embedding_size": 100}
    tokens = {"image_token_id": IMAGE, "boi_token_id": 301, "eoi_token_id": 302, "audio_token_id": SOUND}
    if audio:
        sizes["num_hidden_layers"] = 1  # the images are those of the models without sounds, which have two layers
    return transformers.Gemma4Config(
        text_config={**_TEXT, **_WINDOWS, **layers}, vision_config={**_VISION, **sizes, "pooling_kernel_size": 3},
        audio_config=audio, boa_token_id=304, video_token_id=390, **tokens,
    )  # fmt: skip


def _mistral3() -> Any:
    vision = transformers.PixtralVisionConfig(**_VISION, head_dim=8, image_size=64, patch_size=4)
    text = transformers.MistralConfig(**_TEXT, sliding_window=None)
    return transformers.Mistral3Config(
        text_config=text, vision_config=vision, image_token_index=IMAGE, spatial_merge_size=2
    )


def _qwen(name: str, vision: dict[str, Any], **text: Any) -> Any:
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    sizes = {"depth": 3, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    tokens = {"image_token_id": IMAGE, "video_token_id": 303, "vision_start_token_id": 301, "vision_end_token_id": 302}
    return getattr(transformers, f"{name}Config")(
        text_config={**_TEXT, "rope_parameters": rope, **text},
        vision_config={**sizes, "patch_size": 4, "spatial_merge_size": 2, **vision},
        **tokens,
    )


def _processor_of_qwen() -> Any:
    return transformers.Qwen2VLImageProcessor(size={"shortest_edge": 64, "longest_edge": 4096}, patch_size=4)


def _reader_of_qwen(name: str, vision: dict[str, Any], **text: Any) -> Reader:
    return Reader(lambda: _qwen(name, vision, **text), _processor_of_qwen, "qwen", "<|vision_start|><|vision_end|>")


_RECURRENT = {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 2, "linear_num_key_heads": 2,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
}  # fmt: skip
_PLACES = {"num_position_embeddings": 16}


def _images_of_gemma4() -> Any:
    return transformers.Gemma4ImageProcessor(max_soft_tokens=70, patch_size=4)


class _Processors:
    """Has a processor of images and one of sounds."""

    def __init__(self) -> None:
        self.image_processor = _images_of_gemma4()
        numbers = {"per_bin_mean": [0.1] * 32, "per_bin_stddev": [2.0] * 32}
        self.feature_extractor = transformers.Gemma4AudioFeatureExtractor(feature_size=32, **numbers)

    def __call__(self, **given: Any) -> Any:
        return self.image_processor(**given)

    def save_pretrained(self, folder: str) -> None:
        """Writes nothing: the exported folder has configs of its own."""


def _reader_of_gemma4(audio: dict[str, Any] | None = None, **text: Any) -> Reader:
    return Reader(
        lambda: _gemma4(audio, **text),
        _Processors if audio else _images_of_gemma4,
        "gemma4",
        "<|image>",
        ((84, 108), (108, 84)),
        sound="<|audio|>" if audio else "",
    )


READERS = {
    "gemma3": Reader(
        _gemma3, lambda: transformers.Gemma3ImageProcessor(size={"height": 32, "width": 32}), "gemma3",
        "<start_of_image>", ((32, 32), (32, 32)), "token_type_ids",
    ),
    "gemma4": _reader_of_gemma4(hidden_size_per_layer_input=8),
    "gemma4 with images seen whole": _reader_of_gemma4(
        hidden_size_per_layer_input=0, use_bidirectional_attention="vision"
    ),
    "gemma4 with sounds": _reader_of_gemma4(_SOUND, hidden_size_per_layer_input=8),
    "mistral3": Reader(
        _mistral3,
        lambda: transformers.PixtralImageProcessor(size={"longest_edge": 64}, patch_size={"height": 8, "width": 8}),
        "mistral3", "[IMG]", types="",
    ),
    "qwen2_5_vl": _reader_of_qwen("Qwen2_5_VL", {"window_size": 16, "fullatt_block_indexes": [1]}),
    "qwen3_vl": _reader_of_qwen("Qwen3VL", {**_PLACES, "deepstack_visual_indexes": [0, 2]}),
    "qwen3_5": _reader_of_qwen("Qwen3_5", _PLACES, **_RECURRENT),
}  # fmt: skip
"""Name → the family."""


def build(name: str) -> Any:
    """Returns a model whose weights are large enough that a difference shows."""
    model = transformers.AutoModelForImageTextToText.from_config(READERS[name].config()).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.15)
    return model


def tokenizer(name: str) -> Any:
    """Returns a tokenizer of bytes, with the special tokens of a family."""
    special = ["<pad>", "<s>", "</s>"]
    words = [*special, *sorted(bytes_to_unicode().values())]
    words += [f"unused{number}" for number in range(len(words), IMAGE)]
    tokens = Tokenizer(BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokens.add_special_tokens([*special, *_TOKENS[READERS[name].tokens]])
    names = dict(zip(("pad_token", "bos_token", "eos_token"), special, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, **names)
