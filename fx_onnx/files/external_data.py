"""The data file of a model: where each initializer is stored, and what the model in memory reads after a save.

``ir.external_data`` aligns to 4096 bytes or more, and it stores tied weights once for each name.

A save may remove the data file that the model in memory reads. Such a model then reads the new data file, or a map of
the old one; ``ir.save`` would make its tensors invalid.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import onnx_ir as ir

from fx_onnx.files.stored_weight import StoredWeight
from fx_onnx.files.streaming import Piece
from fx_onnx.onnx_model.dtypes import is_sub_byte
from fx_onnx.onnx_model.weights import LazyWeight, Weight, mapped, memory_key
from fx_onnx.passes.traversal import all_initializers

__all__ = ["data_file", "reads", "without_files"]

EXTERNAL_FROM_BYTES = 256
"""Smaller tensors stay in the model file, because shape inference may read them and they take little space."""
ALIGNMENT_BYTES = 64
"""The alignment of tensors in the data file. A runtime that maps the file into memory gets aligned vectors."""


def data_file(model: ir.Model) -> tuple[dict[ir.Value, int], list[Piece]]:
    """Returns the offset of each initializer in the data file, and the pieces of the file in order.

    Initializers that share memory share an offset. Zeros align the others.
    """
    offsets: dict[ir.Value, int] = {}
    known: dict[Hashable, int] = {}
    pieces: list[Piece] = []
    end = 0
    for value in all_initializers(model.graph):
        tensor = value.const_value
        if tensor is None or isinstance(tensor, (ir.StringTensor, StoredWeight)) or tensor.nbytes < EXTERNAL_FROM_BYTES:
            continue
        key = _identity(tensor)
        if key not in known:
            pieces += [bytes(-end % ALIGNMENT_BYTES), tensor]
            known[key] = end + -end % ALIGNMENT_BYTES
            end = known[key] + tensor.nbytes
        offsets[value] = known[key]
    return offsets, pieces


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
    known = list(files)
    return {
        value: written[value] if value in written else _mapped(value.const_value, known)
        for value in all_initializers(model.graph)
        if value.const_value is not None and any(reads(value.const_value, file) for file in known)
    }


def _mapped(tensor: ir.TensorProtocol, files: Sequence[Path]) -> ir.TensorProtocol:
    """Returns a tensor with the same values that does not need the files, because it reads a memory map of its bytes.

    The array of ``ir.ExternalTensor`` would map the whole file once more for each tensor.
    """
    if isinstance(tensor, LazyWeight):
        return tensor.over([_mapped(source, files) for source in tensor.sources])
    if not isinstance(tensor, ir.ExternalTensor) or not any(reads(tensor, file) for file in files):
        return tensor
    whole = is_sub_byte(tensor.dtype) or not tensor.nbytes  # packed values cannot be mapped, and nothing neither
    return ir.Tensor(tensor.numpy() if whole else mapped(tensor), dtype=tensor.dtype, name=tensor.name)
