"""The metadata by which sherpa-onnx runs the files of a stream, and its file of tokens.

Source: the files ``online-*-model.cc`` of sherpa-onnx, which reads inputs, states and results by their order.
"""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fx_onnx.applications.parts import Part
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["sherpa_metadata", "write_tokens"]

_Shapes = Sequence[Sequence[int]]
_Derive = Callable[[Sequence[int], _Shapes, Sequence[int]], int] | None
"""Returns the value of a key from the shapes of the chunk, of the states and of the first result."""


def _size(state: int, axis: int) -> _Derive:
    return lambda _, states, __: states[state][axis]


_CHUNK: dict[str, _Derive] = {"T": lambda chunk, _, __: chunk[1], "decode_chunk_len": None}
_LISTS = ("encoder_dims", "query_head_dims", "value_head_dims", "num_heads", "num_encoder_layers")
_KEYS: dict[str, dict[str, _Derive]] = {
    "lstm": {
        **_CHUNK,
        "num_encoder_layers": _size(0, 0),
        "d_model": _size(0, 2),
        "rnn_hidden_size": _size(1, 2),
    },
    "conformer": {
        **_CHUNK,
        "num_encoder_layers": _size(0, 0),
        "left_context": _size(0, 1),
        "encoder_dim": _size(0, 3),
        "cnn_module_kernel": lambda _, states, __: states[1][1] + 1,
        "pad_length": None,
    },
    "zipformer2": {**_CHUNK, **dict.fromkeys((*_LISTS, "cnn_module_kernels", "left_context_len"))},
    "nemo_ctc": {
        "window_size": lambda chunk, _, __: chunk[2],
        "chunk_shift": None,
        "subsampling_factor": None,
        "vocab_size": lambda _, __, result: result[-1] - 1,  # without the blank
        **{f"cache_last_channel_dim{axis}": _size(0, axis) for axis in (1, 2, 3)},
        **{f"cache_last_time_dim{axis}": _size(1, axis) for axis in (1, 2, 3)},
    },
}
"""The type of a model → its keys, and how a value is derived; None if the module has it as an attribute."""


def sherpa_metadata(parts: Sequence[Part]) -> Mapping[str, Mapping[str, str]]:
    """Returns the metadata of each part of a stream, by its name. Other parts have theirs.

    The module of the states has the attribute ``model_type``, such as ``zipformer2``. A key is the value of its
    attribute of this name, such as ``decode_chunk_len``, or is derived from the shapes.

    Raises:
        ArgumentError: the type is not known, or an attribute is missing.
    """
    first, *others = parts
    if not first.initial:  # no stream
        return {}
    kind = getattr(first.module, "model_type", None)
    if kind not in _KEYS:
        raise ArgumentError(
            f"sherpa-onnx needs the type of the model: set the attribute model_type of {type(first.module).__name__} "
            f"to one of {', '.join(_KEYS)}.",
            id=MessageId.MODEL_SOURCE,
        )
    chunk = next(value.shape for name, value in first.kwargs.items() if name not in first.initial)
    states = [leaf.shape for leaf in pytree.tree_leaves(first.initial)]
    own = {"model_type": kind, **_read(first, _KEYS[kind], (chunk, states, _result(first).shape))}
    metadata = {first.name: own}
    if others:
        decoder, joiner = others
        tokens = next(iter(decoder.kwargs.values()))
        metadata["decoder"] = {"context_size": str(tokens.shape[1]), "vocab_size": str(_result(joiner).shape[-1])}
        metadata["joiner"] = {"joiner_dim": str(_result(decoder).shape[-1])}
    return metadata


def _result(part: Part) -> torch.Tensor:
    with torch.no_grad():
        return pytree.tree_leaves(part.module(**copy.deepcopy(part.kwargs)))[0]  # type: ignore[no-any-return]


def _read(part: Part, keys: Mapping[str, _Derive], shapes: tuple[Any, Any, Any]) -> dict[str, str]:
    values = {}
    for key, derive in keys.items():
        value = getattr(part.module, key, None) if derive is None else derive(*shapes)
        if value is None:
            raise ArgumentError(
                f"sherpa-onnx needs the value of {key}: set it as an attribute of {type(part.module).__name__}.",
                id=MessageId.MODEL_SOURCE,
            )
        values[key] = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return values


def write_tokens(folder: Path, tokenizer: Any) -> None:
    """Writes ``tokens.txt``, whose lines have the bytes of a token in base64 and its number, without special tokens.

    Raises:
        ArgumentError: there is no tokenizer.
    """
    if tokenizer is None:
        raise ArgumentError(
            "sherpa-onnx needs the tokens of the model: save the tokenizer in its folder.", id=MessageId.MODEL_SOURCE
        )
    special = {*tokenizer.get_added_vocab().values()}
    words = {number: word for word, number in tokenizer.get_vocab().items() if number not in special}
    bytes_of = _bytes_in(words.values())
    lines = [f"{base64.b64encode(bytes_of(words[number])).decode()} {number}\n" for number in sorted(words)]
    (folder / "tokens.txt").write_text("".join(lines), encoding="ascii")


def _bytes_in(words: Collection[str]) -> Callable[[str], bytes]:
    """Returns what gives the bytes of a word: a letter for each byte, as in GPT-2, or a text as in SentencePiece."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()  # type: ignore[no-untyped-call, unused-ignore]
    byte_of = {letter: byte for byte, letter in letters.items()}
    if all(letter in byte_of for word in words for letter in word):
        return lambda word: bytes(byte_of[letter] for letter in word)
    return lambda word: (
        bytes([int(found[1], 16)])
        if (found := re.fullmatch("<0x([0-9A-F]{2})>", word))
        else word.replace("\u2581", " ").encode()
    )
