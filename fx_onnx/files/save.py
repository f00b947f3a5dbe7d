"""Saves a model to a path or a file object. A file that a save replaces stays whole until the new one is complete."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx_ir as ir

from fx_onnx.extension_points import rooms
from fx_onnx.files.destination import check_destination
from fx_onnx.files.external_data import data_file, reads, without_files
from fx_onnx.files.file_replacement import replacement
from fx_onnx.files.serialization import Contents, placeholder, serialized, single_file
from fx_onnx.files.streaming import Piece, length, write
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.weights import has_data
from fx_onnx.passes.traversal import all_initializers

__all__ = ["Destination", "parameter_bytes", "require_data", "save"]

Destination = str | os.PathLike[str] | BinaryIO

MAX_FILE_BYTES = 2**31 - 1
"""The longest message that protobuf can read. A larger model needs a second file for its weights."""

_BAD_PATH = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


def save(
    model: ir.Model,
    destination: Destination,
    *,
    include_initializers: bool = True,
    keep_initializers_as_inputs: bool = False,
    external_data: bool | None = None,
    weights_from: str | os.PathLike[str] | None = None,
    tied: Iterable[Sequence[str]] = (),
    metadata: str = "full",
    durable: bool = True,
) -> None:
    """Writes ``model`` to a path or a binary file. The values of the model in memory do not change, even if this fails.

    A file gets its final name only when it is complete and on the disk. Whenever the process stops, through an error,
    an interrupt, a kill or a power failure, the old model or the new one is whole under the name. A kill may also leave
    hidden files and one data file, which the next save to the same path removes. Two processes may save to one path at
    the same time; the second waits for the first. A program that opens the model meanwhile gets one whole model. If it
    opened an old model whose data file is removed before it reads it, it does not find that file.

    On Windows, and on file systems without ``flock``, a save does not wait for another one and does not remove what a
    kill left.

    Args:
        model: the model. Tied weights, which share memory, appear once in the data file.
        destination: a path in an existing folder, or a file object with ``write(bytes)``.
        include_initializers: whether the weights are written. If not, they are graph inputs after the others.
        keep_initializers_as_inputs: whether the weights are graph inputs too, so that a runtime may override them.
        external_data: True writes weights of 256 bytes and more to ``<name>.data``, or to ``<name>.1.data`` if the
            model that is replaced reads ``<name>.data``, and so on. The data file of the replaced model is removed.
            None and False write a single file. Above the 2 GB limit of protobuf the data file is always written;
            False then warns.
        weights_from: a safetensors file, index or folder. The model refers to it for all weights that it contains.
        tied: groups of names that share one weight. ``weights_from`` may contain any name of a group.
        metadata: what the file tells about the model's code: ``full``, ``names`` or ``none``.
        durable: whether to wait until the files are on the disk, which takes about one second a gigabyte on an SSD.
            False protects against kills, but not against power failures.

    Raises:
        ArgumentError: the path cannot be written, a weight has no data, ``weights_from`` does not fit, or the model
            needs two files but the destination is a file object. Nothing is written.
        OnnxExporterError: writing failed, for example because the disk is full. An older file with this name remains.
    """
    check_destination(destination)
    path = Path(destination) if isinstance(destination, (str, os.PathLike)) else None
    job = _Job(model, Contents(include_initializers, keep_initializers_as_inputs, metadata), durable)
    if weights_from is None:
        _save(job, destination, path, external_data)
        return
    if path is None or _is_stream(path) or not include_initializers:
        raise ArgumentError(
            "weights_from needs a path as the destination, and include_initializers=True.", id=MessageId.FILE
        )
    with rooms.find("program", "weights_from")(model, path, weights_from, tied) as pointing:
        _save(_Job(pointing, job.contents, durable, original=model), path, path, external_data)


@dataclass(frozen=True)
class _Job:
    """What is saved.

    Attributes:
        model: the model.
        contents: which parts of it are written.
        durable: whether to wait until the files are on the disk.
        original: the model of the caller, if ``model`` is a view of it that refers to stored weights.
    """

    model: ir.Model
    contents: Contents
    durable: bool
    original: ir.Model | None = None

    def reads(self, file: Path) -> bool:
        """Returns whether a weight in memory has its values in the file."""
        tensors = [value.const_value for model in self._models() for value in all_initializers(model.graph)]
        return any(tensor is not None and reads(tensor, file) for tensor in tensors)

    def detach(self, files: Sequence[Path], written: Mapping[ir.Value, ir.TensorProtocol]) -> None:
        """Lets the weights in memory read the same values from other places, because ``files`` are removed next."""
        for model in self._models():
            for value, tensor in without_files(model, files, written).items():
                value.const_value = tensor

    def _models(self) -> list[ir.Model]:
        return [self.model] if self.original is None else [self.model, self.original]


def _save(job: _Job, destination: Destination, path: Path | None, external_data: bool | None) -> None:
    """Writes one file, or two files if the weights need a file of their own."""
    removed = job.contents.removed(job.model)
    require_data(value for value in all_initializers(job.model.graph) if value not in removed)
    with _system_errors(destination):
        single = None if external_data else _single(job)
        data_name = None
        if path is not None and not _is_stream(path):
            data_name = _replace(job, path, single)
        elif single is None:
            raise ArgumentError(
                "External data and models above 2 GB need a file path, not a stream.", id=MessageId.FILE
            )
        else:
            with nullcontext(destination) if path is None else path.open("wb") as file:
                write(single, file)
    if external_data is False and data_name is not None:
        warn(
            f"A model above 2 GB does not fit into a single ONNX file; its weights are in {data_name}.",
            MessageId.EXTERNAL_DATA,
        )


@contextmanager
def _system_errors(destination: Destination) -> Iterator[None]:
    """Turns the errors of the system into errors of fx_onnx."""
    try:
        yield
    except OSError as error:
        refused = isinstance(error, _BAD_PATH) or error.errno == errno.ENAMETOOLONG
        kind = ArgumentError if refused else OnnxExporterError
        raise kind(
            f"The model could not be saved to {destination!r}: {error.strerror or error}.", id=MessageId.FILE
        ) from error


def parameter_bytes(model: ir.Model) -> int:
    """Returns the size of all initializers in bytes."""
    return sum(value.const_value.nbytes for value in all_initializers(model.graph) if value.const_value is not None)


def require_data(values: Iterable[ir.Value]) -> None:
    """Checks that every weight has data.

    Raises:
        ArgumentError: a weight has no data; the message names the first one.
    """
    for value in values:
        if value.const_value is None or not has_data(value.const_value):
            raise ArgumentError(
                f"The weight {value.name!r} has no data, because it was a FakeTensor or on the meta device; give it "
                "data with ONNXProgram.apply_weights(state_dict) or save(weights_from=...), or save with "
                "include_initializers=False.",
                id=MessageId.WEIGHT_WITHOUT_DATA,
            )


# Files


def _single(job: _Job) -> list[Piece] | None:
    """Returns the pieces of a single file, or None if it would be too long for protobuf."""
    pieces = single_file(job.model, job.contents)
    return pieces if length(pieces) <= MAX_FILE_BYTES else None


def _replace(job: _Job, path: Path, single: list[Piece] | None) -> str | None:
    """Replaces the model at ``path``: by a single file, or by a model with its larger initializers beside it.

    Returns:
        The name of the data file if there is one.
    """
    offsets, data = data_file(job.model) if single is None and job.contents.initializers else ({}, [])
    with replacement(path, durable=job.durable) as files:
        name = files.new_data_name(job.reads) if data else None
        written = {value: placeholder(value, str(name), offset, path.parent) for value, offset in offsets.items()}
        files.install(single or [serialized(job.model, written, job.contents).SerializeToString()], data, name)
        job.detach(files.old_data, written)
    return name


def _is_stream(path: Path) -> bool:
    """Returns whether the path is a device or a pipe, which is written directly and cannot be replaced."""
    return path.exists() and not path.is_file()
