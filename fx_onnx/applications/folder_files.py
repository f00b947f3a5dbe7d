"""Writes the folder of an application: copies the files of the source, and replaces an old folder by the new one."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fx_onnx.applications.inputs import parts_of
from fx_onnx.applications.layouts import Layout
from fx_onnx.applications.source import Source, is_diffusion
from fx_onnx.files.destination import write_json
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId

__all__ = ["complete_tokenizer", "copy_files", "replaced"]

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".index.json", ".data")
_TOKENS = "extra_special_tokens"
_VOCABULARIES = ("vocab.json", "vocab.txt", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model")

_TOKENIZERS = tuple(f"**/{name}" for name in ("tokenizer*", *_VOCABULARIES))


def copy_files(source: Source, folder: Path) -> None:
    """Copies all files of the source but its weights, as they are; a model that is loaded writes them.

    transformers 5 writes one file for a processor, and a config of a tokenizer that older clients cannot read. So the
    file of the image processor or feature extractor is added, and the config is restored. Both halves of the
    autoencoder of a pipeline get its config.
    """
    if source.folder is not None:

        def ignored(_: str, names: list[str]) -> set[str]:
            return {name for name in names if name.endswith(_WEIGHTS) or name.startswith(".")}

        shutil.copytree(source.folder, folder, ignore=ignored, dirs_exist_ok=True)
    elif is_diffusion(source.model):
        source.model.save_config(folder)
        for name, component in source.model.components.items():
            _save_config(component, folder / name)
    else:
        _save_config(source.model, folder)
        for part in (getattr(source.model, "generation_config", None), *source.processors):
            _save_config(part, folder)
    for name in ("vae_encoder", "vae_decoder"):
        if (folder / "vae").is_dir():
            shutil.copytree(folder / "vae", folder / name)
    index = _read(folder / "model_index.json")
    for part in (folder, *(folder / name for name in index)):
        _restore_tokenizer(part, index)
    if index:
        write_json(folder / "model_index.json", index)
    processor = _read(folder / "processor_config.json")
    for name in ("image_processor", "feature_extractor"):
        path = folder / "preprocessor_config.json"
        if name in processor and not path.exists():
            write_json(path, {**processor[name], "processor_class": processor.get("processor_class")})


def _save_config(part: Any, folder: Path) -> None:
    """Writes the files of a part of a model but its weights."""
    if hasattr(part, "forward") and hasattr(part, "save_config"):  # a model of diffusers
        part.save_config(folder)
    elif hasattr(part, "forward") and hasattr(getattr(part, "config", None), "save_pretrained"):
        config = copy.deepcopy(part.config)
        config.architectures = [type(part).__name__]
        config.save_pretrained(folder)
    elif hasattr(part, "save_pretrained"):
        part.save_pretrained(folder)


def _restore_tokenizer(folder: Path, index: dict[str, Any]) -> None:
    """Writes the config of a tokenizer as older versions of transformers read it.

    It names the fast class, also in the index of a pipeline, if the vocabulary is in ``tokenizer.json`` only, and the
    list of further special tokens is ``additional_special_tokens``.
    """
    config = _read(folder / "tokenizer_config.json")
    restored = {name: value for name, value in config.items() if name != _TOKENS or isinstance(value, dict)}
    if restored != config:
        restored.setdefault("additional_special_tokens", config[_TOKENS])
    if config.get("tokenizer_class") == "TokenizersBackend":
        restored["tokenizer_class"] = "PreTrainedTokenizerFast"
    if restored != config:
        write_json(folder / "tokenizer_config.json", restored)
    library, name = (index.get(folder.name) or (None, None)) if config else (None, None)
    is_fast = (folder / "tokenizer.json").is_file() and not any((folder / file).is_file() for file in _VOCABULARIES)
    if is_fast and name is not None and not name.endswith("Fast"):
        index[folder.name] = [library, f"{name}Fast"]


def complete_tokenizer(source: Source, folder: Path, layout: Layout, *, takes_tokens: bool) -> None:
    """Writes ``tokenizer.json``, of which the source may have older files only. Warns if the folder lacks it.

    Args:
        source: the source.
        folder: the new folder, with the files of the source.
        layout: the layout, whose application may need a file of its own.
        takes_tokens: whether the model reads or generates text.
    """
    file, texts = folder / "tokenizer.json", ("a photo of a cat", "two dogs")
    reason, needed = "the source has none" if takes_tokens or layout.is_genai else "", layout.tokenizer
    for tokenizer in parts_of(source.processors):
        if not hasattr(tokenizer, "convert_tokens_to_ids") or file.is_file():
            continue
        converted = _converted(tokenizer)
        if converted is not None and all(converted.encode(text).ids == tokenizer(text).input_ids for text in texts):
            converted.save(str(file))
        else:
            reason = f"transformers cannot convert {type(tokenizer).__name__}"
    if reason and not any(any(folder.glob(name)) for name in needed or _TOKENIZERS):
        warn(
            f"The folder has no {needed[0] if needed else 'tokenizer'}, because {reason}; the application must get its "
            "tokens elsewhere.",
            MessageId.GENAI_FOLDER,
        )


def _converted(tokenizer: Any) -> Any:
    """Returns a tokenizer as one of the package tokenizers; None if transformers cannot convert it."""
    if hasattr(tokenizer, "backend_tokenizer"):
        return tokenizer.backend_tokenizer
    try:
        from transformers.convert_slow_tokenizer import convert_slow_tokenizer

        return convert_slow_tokenizer(tokenizer)
    except (AttributeError, ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError):
        return None


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Yields a new folder beside a folder, which takes its place at the end. After an error the old one remains.

    Raises:
        ArgumentError: a file cannot be written, for example because the disk is full.
    """
    path = folder.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name[:40]}.", dir=path.parent) as beside:
            new, old = Path(beside, "new"), Path(beside, "old")
            new.mkdir()
            yield new
            try:
                if path.exists():
                    path.rename(old)
                new.rename(path)
            except BaseException:  # an interruption too
                if old.exists() and not path.exists():
                    old.rename(path)
                raise
    except (OSError, OnnxExporterError) as error:
        cause = error.__cause__ if isinstance(error, OnnxExporterError) else error
        if not isinstance(cause, OSError) or getattr(error, "id", MessageId.FILE) != MessageId.FILE:
            raise
        raise ArgumentError(
            f"The folder {folder} cannot be written: {cause.strerror or cause}; nothing has changed.",
            id=MessageId.FILE,
        ) from error
