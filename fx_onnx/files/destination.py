"""Checks of the place where a model is saved, which are made before the export begins, and files beside the model."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fx_onnx.messages.arguments import check_path, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["check_destination", "check_folder", "write_json", "writing"]


def check_destination(destination: Any, external_data: bool | None = None) -> None:
    """Checks that a model can be saved to a path or a binary file. Nothing is written.

    Args:
        destination: a path in an existing folder, or a file object that is open for writing in binary mode.
        external_data: True needs a path, because the weights are written beside the model.

    Raises:
        ArgumentError: the model cannot be saved there.
    """
    if isinstance(destination, (str, os.PathLike)):
        _check_file(destination)
        return
    is_text = isinstance(destination, io.TextIOBase) or isinstance(getattr(destination, "file", None), io.TextIOBase)
    if is_text or not callable(getattr(destination, "write", None)):
        raise ArgumentError(
            f"The model can be saved to a path or a file opened in binary mode, not to {shown(destination)}.",
            id=MessageId.FILE,
        )
    if getattr(destination, "closed", False):
        raise ArgumentError("The model cannot be saved to a file that is closed.", id=MessageId.FILE)
    writable = getattr(destination, "writable", None)
    if callable(writable) and not writable():
        raise ArgumentError("The model cannot be saved to a file that is open for reading only.", id=MessageId.FILE)
    if external_data:
        raise ArgumentError("External data and models above 2 GB need a file path, not a stream.", id=MessageId.FILE)


def _check_file(destination: str | os.PathLike[str]) -> None:
    check_path("The path of the model", destination)
    path = Path(destination)
    try:
        if path.is_dir():
            raise ArgumentError(
                f"The model cannot be saved to {shown(os.fspath(path))}: it is a folder.", id=MessageId.FILE
            )
        if not path.parent.is_dir():
            raise ArgumentError(
                f"The model cannot be saved to {shown(os.fspath(path))}: there is no such folder.", id=MessageId.FILE
            )
        is_stream = os.path.lexists(path) and path.exists() and not path.is_file()
    except OSError as error:  # for example, the name is too long
        raise ArgumentError(
            f"The model cannot be saved to {shown(os.fspath(path))}: {error.strerror}.", id=MessageId.FILE
        ) from error
    if not is_stream and not os.access(path.resolve().parent, os.W_OK | os.X_OK):
        raise ArgumentError(
            f"The model cannot be saved to {shown(os.fspath(path))}: its folder cannot be written.", id=MessageId.FILE
        )


@contextmanager
def writing(what: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns an error of the system into an ArgumentError: what could not be written to which path."""
    try:
        yield
    except OSError as error:
        raise ArgumentError(f"{what} cannot be written to {os.fspath(path)!r}: {error}.", id=MessageId.FILE) from error


def check_folder(parameter: str, folder: Any) -> None:
    """Checks that files can be written to a folder, which is created if it does not exist. Nothing remains.

    Raises:
        ArgumentError: it cannot be created, or a file in it cannot be written.
    """
    check_path(parameter, folder)
    path = Path(folder).absolute()
    created: list[Path] = []
    try:
        created = [parent for parent in (path, *path.parents) if not parent.exists()]
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"\0")
    except OSError as error:
        raise ArgumentError(
            f"{parameter} {shown(os.fspath(folder))} cannot be written: {error.strerror}.", id=MessageId.FILE
        ) from error
    finally:
        for parent in created:
            with suppress(OSError):  # another process may use it already
                parent.rmdir()


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Writes a config of an application as JSON, in lines that people can read."""
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
