"""Writes the folder from which onnxruntime-genai runs a decoder: the model, its weights, the config, the tokenizer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from fx_onnx.applications.genai.decoder_interface import DecoderInterface, find_decoder_interface
from fx_onnx.applications.genai.genai_config import genai_config, settings
from fx_onnx.files.destination import check_folder, write_json
from fx_onnx.messages.arguments import check_flag, check_path, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId

__all__ = ["write_genai_folder"]

_MODEL = "model.onnx"
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "chat_template.jinja", "chat_template.json",
)  # fmt: skip


def write_genai_folder(
    model: ir.Model,
    folder: str | os.PathLike[str],
    save: Callable[[Path], None],
    *,
    config: Any = None,
    generation_config: Any = None,
    tokenizer: Any = None,
    shared_buffer: bool | None = None,
) -> None:
    """Writes a model, its ``genai_config.json`` and the tokenizer's files to a folder; ``ONNXProgram.save_genai``.

    Args:
        model: the model. It does not change.
        folder: is created if it does not exist.
        save: writes the model to a path.
        config: the config of the model, of transformers or as a dict.
        generation_config: the same for the search. Its values win over those of ``config``.
        tokenizer: a tokenizer with ``save_pretrained``, or a folder with its files.
        shared_buffer: whether past and present are one buffer. None shares it if the model allows it.

    Raises:
        ArgumentError: the model is no decoder with a cache, or an argument is not valid. Nothing is written.
    """
    check_flag("shared_buffer", shared_buffer, optional=True)
    interface = find_decoder_interface(model)
    shared = _checked_sharing(interface, shared_buffer)
    copy_tokenizer = _tokenizer_writer(tokenizer)
    has_tokens = tokenizer is not None and not isinstance(tokenizer, (str, os.PathLike))
    values = settings(generation_config, config, tokenizer if has_tokens else None)
    content = genai_config(interface, _MODEL, values, shared_buffer=shared)
    check_folder("The folder", folder)
    windows = None if interface.skips_padding else _windows(values)
    if (reason := interface.needs_equal_prompts or windows) is not None:
        warn(
            f"The prompts of one batch must have the same length, because the program {reason}.", MessageId.GENAI_FOLDER
        )
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    save(path / _MODEL)
    copy_tokenizer(path)
    write_json(path / "genai_config.json", content)


def _windows(values: Mapping[str, Any]) -> str | None:
    """Tells that the padding of a batch counts as tokens of a sliding window, if the model has such layers."""
    layers = values.get("layer_types") or (["sliding_attention"] if values.get("sliding_window") else [])
    return "has sliding windows, which count padding as tokens" if "sliding_attention" in layers else None


def _checked_sharing(interface: DecoderInterface, shared_buffer: bool | None) -> bool:
    """Returns whether past and present are one buffer.

    Raises:
        ArgumentError: the model does not allow what is asked for.
    """
    if shared_buffer and not interface.writes_in_place:
        raise ArgumentError(
            "Past and present cannot share a buffer, because the program returns a new tensor for each of them instead "
            "of writing into the past; leave out shared_buffer.",
            id=MessageId.GENAI_PROGRAM,
        )
    if shared_buffer is False and interface.capacity is not None:
        raise ArgumentError(
            f"Past and present must share a buffer, because the cache has the fixed size {interface.capacity}; leave "
            "out shared_buffer.",
            id=MessageId.GENAI_PROGRAM,
        )
    return interface.writes_in_place if shared_buffer is None else bool(shared_buffer)


# ---------------------------------------------------------------- the tokenizer


def _tokenizer_writer(tokenizer: Any) -> Callable[[Path], Any]:
    """Returns a function that writes the files of the tokenizer to a folder.

    Raises:
        ArgumentError: it is neither a tokenizer nor a folder with the files of one.
    """
    if tokenizer is None:
        return lambda _: None
    if not isinstance(tokenizer, (str, os.PathLike)):
        if not callable(getattr(tokenizer, "save_pretrained", None)):
            raise ArgumentError(f"tokenizer must be a tokenizer of transformers or a folder, not {shown(tokenizer)}.")
        return tokenizer.save_pretrained  # type: ignore[no-any-return]
    check_path("tokenizer", tokenizer)
    files = [Path(tokenizer) / name for name in _TOKENIZER_FILES]
    present = [file for file in files if file.is_file()]
    if not present:
        raise ArgumentError(
            f"The folder {os.fspath(tokenizer)!r} has no files of a tokenizer, such as tokenizer.json.",
            id=MessageId.GENAI_FOLDER,
        )

    def copy(folder: Path) -> None:
        for file in present:
            if file.resolve() != (folder / file.name).resolve():
                shutil.copyfile(file, folder / file.name)

    return copy
