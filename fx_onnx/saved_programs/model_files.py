"""Loads a model from a file: a program of torch.export, also of an older torch, or a TorchScript model.

A file that is no model is refused without an import of torch.
"""

from __future__ import annotations

import logging
import os
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fx_onnx.extension_points.rooms import TABLE, find
from fx_onnx.messages.errors import ArgumentError, first_line
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["load_model"]

_PROGRAMS = {"models/model.json", "serialized_exported_program.json"}  # of torch 2.8 and newer, and of older ones
_SHOWN = 260  # characters of a path
_PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl")


def load_model(file: str | os.PathLike[str]) -> Any:
    """Loads the ExportedProgram of a ``.pt2`` file, or the module of a TorchScript file.

    Args:
        file: the path.

    Raises:
        ArgumentError: there is no such file, it is of another kind, or torch cannot load it.
    """
    path = Path(file)
    if os.path.isfile(path / "config.json"):
        raise ArgumentError(
            f"{path} is a folder of a Hugging Face model; call fx_onnx.export_pretrained, or name it hf:{path} in the "
            "command.",
            id=MessageId.MODEL_SOURCE,
        )
    if not os.path.isfile(path):
        name = f"{str(path)[:_SHOWN]}{'...' * (len(str(path)) > _SHOWN)}"
        problem = f"{name} is a folder" if os.path.isdir(path) else f"There is no file {name}"
        raise ArgumentError(
            f"{problem}; a model is a .pt2 file of torch.export or a TorchScript file.", id=MessageId.MODEL_SOURCE
        )
    entries = _entries(path)
    if entries & _PROGRAMS:
        return _program(path)
    if "constants.pkl" in entries and any(entry.startswith("code/") for entry in entries):
        import torch

        with _explained(path):
            return torch.jit.load(path, map_location="cpu")
    if "data.pkl" in entries or path.suffix in _PICKLED:
        raise ArgumentError(
            f"{path} is pickled: loading it would run the code in the file, and weights alone are no model. Export the "
            "model that has loaded the weights, or save it with torch.export.save.",
            id=MessageId.MODEL_SOURCE,
        )
    raise ArgumentError(
        f"{path} is neither a .pt2 file of torch.export nor a TorchScript file, or it is incomplete.",
        id=MessageId.MODEL_SOURCE,
    )


def _entries(path: Path) -> set[str]:
    """Returns the names of the files in an archive, with and without its top folder; none of another file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name for entry in archive.namelist() for name in (entry, entry.partition("/")[2])}
    except zipfile.BadZipFile:
        return set()


def _program(path: Path) -> ExportedProgram:
    import torch
    from torch.serialization import get_unsafe_globals_in_checkpoint

    from fx_onnx.torch_internals.torch_logs import redirect_torch_logs

    with _explained(path), zipfile.ZipFile(path) as archive:
        entries = archive.namelist()
        programs = [archive.read(entry) for entry in entries if entry.endswith(tuple(_PROGRAMS))]
        pickles = (archive.open(entry) for entry in entries if entry.endswith(".pt"))
        unsafe = {name: None for file in pickles for name in get_unsafe_globals_in_checkpoint(file)}
    if unsafe:  # torch.export.load unpickles example inputs and weights without a limit
        raise ArgumentError(
            f"{path} is not loaded, because its example inputs would run code of {', '.join(unsafe)}. If you trust the "
            "file, pass these classes to torch.serialization.add_safe_globals first; or save the program with tensors.",
            id=MessageId.MODEL_SOURCE,
        )
    for name in TABLE["operators"]:
        if any(f"torch.ops.{name.replace('::', '.')}.".encode() in text for text in programs):
            find("operators", name)  # defines it
    errors: list[BaseException] = []
    with _explained(path, errors), redirect_torch_logs(), _logged_errors(errors):
        program = torch.export.load(path)
    if program.range_constraints and not any(b'"guards_code"' in text for text in programs):
        warn(
            f"{path.name} was saved by an older torch, which keeps the range of a dynamic dim and no other condition "
            "on it; compare the results with those of the module at the sizes that you need.",
            MessageId.SIZE_CONDITION,
        )
    return program


@contextmanager
def _explained(path: Path, earlier: list[BaseException] | None = None) -> Iterator[None]:
    """Turns an error of torch into an ArgumentError with the first of the earlier errors."""
    try:
        yield
    except Exception as error:  # torch raises errors of many classes
        cause: Any = next(iter(earlier or ()), error)
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = first_line(cause).partition(". ")[0].rstrip(".")
        is_unknown = isinstance(cause, NotImplementedError) or type(cause).__name__ == "SerializeError"
        raise ArgumentError(
            f"torch {version('torch')} cannot load {path}: {reason}; "
            + ("first import what defines its operators and classes." if is_unknown else "it is damaged or too new."),
            id=MessageId.MODEL_SOURCE,
        ) from error


@contextmanager
def _logged_errors(errors: list[BaseException]) -> Iterator[None]:
    """Collects the errors that torch.export logs in this thread; its error refers to the log."""
    thread, handler, logger = threading.get_ident(), logging.Handler(), logging.getLogger("torch.export")

    def emit(record: logging.LogRecord) -> None:
        if record.thread == thread and record.exc_info and record.exc_info[1] is not None:
            errors.append(record.exc_info[1])

    handler.emit = emit  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
