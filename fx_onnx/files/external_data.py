"""The data file of a model: where each initializer is stored, and what the model in memory reads after a save.

A save may remove the data file that the model in memory reads. Such a model then reads the new data file, or a map of
the old one.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fx_onnx.files.stored_weight import StoredWeight
from fx_onnx.files.streaming import Piece
from fx_onnx.onnx_model.weights import LazyWeight, Weight, memory_key
from fx_onnx.passes.traversal import all_initializers

__all__ = ["DataLocation", "data_file", "data_locations", "reads", "without_files"]

EXTERNAL_FROM_BYTES = 256
"""Smaller tensors stay in the model file, because shape inference may read them and they take little space."""
ALIGNMENT_BYTES = 64
"""The alignment of tensors in the data file. A runtime that maps the file into memory gets aligned vectors."""


@dataclass(frozen=True)
class DataLocation:
    """The location of a tensor in the data file.

    Attributes:
        value: the initializer.
        tensor: its data.
        offset: where the data starts, in bytes.
        first: False for a tied weight whose data another initializer writes.
    """

    value: ir.Value
    tensor: ir.TensorProtocol
    offset: int
    first: bool


def data_locations(model: ir.Model) -> list[DataLocation]:
    """Returns the location of each initializer in the data file. Initializers that share memory share a location."""
    locations: list[DataLocation] = []
    offsets: dict[Hashable, int] = {}
    end = 0
    for value in all_initializers(model.graph):
        tensor = value.const_value
        if tensor is None or isinstance(tensor, (ir.StringTensor, StoredWeight)) or tensor.nbytes < EXTERNAL_FROM_BYTES:
            continue
        key = _identity(tensor)
        if key in offsets:
            locations.append(DataLocation(value, tensor, offsets[key], first=False))
            continue
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        offsets[key] = offset
        locations.append(DataLocation(value, tensor, offset, first=True))
        end = offset + tensor.nbytes
    return locations


def data_file(locations: Sequence[DataLocation]) -> list[Piece]:
    """Returns the pieces of the data file, in order: for each tensor the zeros that align it, and its data."""
    pieces: list[Piece] = []
    end = 0
    for location in locations:
        if location.first:
            pieces += [bytes(location.offset - end), location.tensor]
            end = location.offset + location.tensor.nbytes
    return pieces


def _identity(tensor: ir.TensorProtocol) -> Hashable:
    """Returns a key that is equal for tensors with the same memory or the same location in a file."""
    if isinstance(tensor, Weight):
        return memory_key(tensor.raw)
    if isinstance(tensor, ir.ExternalTensor):
        return tensor.path, tensor.offset, tensor.length, tensor.dtype, tuple(tensor.shape)
    return id(tensor)


# Models that read files


def reads(tensor: ir.TensorProtocol, path: Path) -> bool:
    """Returns whether the values come from the file at ``path``."""
    if isinstance(tensor, LazyWeight):
        return any(reads(source, path) for source in tensor.sources)
    if not isinstance(tensor, ir.ExternalTensor):
        return False
    with suppress(FileNotFoundError):
        return os.path.samefile(tensor.path, path)
    return False


def without_files(
    model: ir.Model, files: Iterable[Path], written: Mapping[ir.Value, ir.TensorProtocol]
) -> dict[ir.Value, ir.TensorProtocol]:
    """Returns new tensors, with the same values, for the initializers that read from ``files``.

    Args:
        model: the model.
        files: the data files that are removed afterwards.
        written: the tensors of the new data file. The others read a map of the old file, which exists until the
            tensors are deleted.
    """
    replaced: dict[ir.Value, ir.TensorProtocol] = {}
    for file in files:
        mapped: npt.NDArray[Any] | None = None
        for value in all_initializers(model.graph):
            tensor = replaced.get(value, value.const_value)
            if tensor is None or not reads(tensor, file):
                continue
            if value in written:
                replaced[value] = written[value]
                continue
            mapped = _map(file) if mapped is None else mapped
            replaced[value] = _over_map(tensor, file, mapped)
    return replaced


def _map(file: Path) -> npt.NDArray[Any]:
    """Returns the bytes of a file, which stay readable after the file is removed."""
    return np.asarray(np.memmap(file, np.uint8, "r")) if file.stat().st_size else np.empty(0, np.uint8)


def _over_map(tensor: ir.TensorProtocol, file: Path, mapped: npt.NDArray[Any]) -> ir.TensorProtocol:
    """Returns a tensor with the same values that reads the mapped bytes instead of the file."""
    if isinstance(tensor, LazyWeight):
        return tensor.over([_over_map(source, file, mapped) for source in tensor.sources])
    if not isinstance(tensor, ir.ExternalTensor) or not reads(tensor, file):
        return tensor
    if tensor.dtype.bitwidth < 8:  # the values are packed
        array = np.array(tensor.numpy())
    else:
        start = tensor.offset or 0
        array = mapped[start : start + tensor.nbytes].view(tensor.dtype.numpy()).reshape(tensor.shape.numpy())
    return ir.Tensor(array, dtype=tensor.dtype, name=tensor.name)
