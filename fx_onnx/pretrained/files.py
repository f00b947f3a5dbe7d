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

from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId
from fx_onnx.pretrained.source import Source

__all__ = ["copy_files", "replaced"]

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".index.json", ".data")


def copy_files(source: Source, folder: Path) -> None:
    """Copies all files of the source but its weights, as they are; a model that is loaded writes them.

    transformers 5 writes one file for a processor, and a name of a class that older clients do not know. So the file of
    the image processor or feature extractor is added, and the name replaced.
    """
    if source.folder is not None:

        def ignored(_: str, names: list[str]) -> set[str]:
            return {name for name in names if name.endswith(_WEIGHTS) or name.startswith(".")}

        shutil.copytree(source.folder, folder, ignore=ignored, dirs_exist_ok=True)
    else:
        config = copy.deepcopy(source.model.config)
        config.architectures = [type(source.model).__name__]
        for part in (config, getattr(source.model, "generation_config", None), *source.processors):
            if part is not None:
                part.save_pretrained(folder)
    processor, tokenizer = (_read(folder / f"{name}_config.json") for name in ("processor", "tokenizer"))
    for name in ("image_processor", "feature_extractor"):
        place = folder / "preprocessor_config.json"
        if name in processor and not place.exists():
            _write(place, {**processor[name], "processor_class": processor.get("processor_class")})
    if tokenizer.get("tokenizer_class") == "TokenizersBackend":
        _write(folder / "tokenizer_config.json", {**tokenizer, "tokenizer_class": "PreTrainedTokenizerFast"})


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Yields a new folder beside a folder, which takes its place at the end. After an error the old one remains.

    Raises:
        ArgumentError: a file cannot be written, for example because the disk is full.
    """
    place = folder.absolute()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name[:40]}.", dir=place.parent) as beside:
            new, old = Path(beside, "new"), Path(beside, "old")
            new.mkdir()
            yield new
            if place.exists():
                place.rename(old)
            try:
                new.rename(place)
            except OSError:
                if old.exists():
                    old.rename(place)
                raise
    except OSError as error:
        raise ArgumentError(
            f"The folder {folder} cannot be written: {error.strerror or error}; the old one is as before.",
            id=MessageId.FILE,
        ) from error
