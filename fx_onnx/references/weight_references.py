"""References to weights in safetensors files. A saved model refers to these files instead of storing the weights again.

safetensors stores values in row-major order and little-endian, as ONNX's external data does. Therefore an entry with
the same dtype, shape and values has exactly the bytes that the model would store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.files.external_data import reads
from fx_onnx.files.file_replacement import is_data_name
from fx_onnx.files.serialization import twin_of, view_of
from fx_onnx.files.stored_weight import StoredWeight
from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.weights import LazyWeight, has_data, stream
from fx_onnx.passes.cleanup.stored_weights import restore_transpose
from fx_onnx.passes.traversal import all_initializers
from fx_onnx.torch_internals.garbage import no_collection

__all__ = ["by_reference", "referring", "stored_weights"]

INDEX_SUFFIX = ".safetensors.index.json"
PIECE_BYTES = 8 * 1024**2
"""How many bytes are compared at a time."""
_MAX_HEADER_BYTES = 100_000_000  # the limit of the format

# The dtypes that both formats have, by their names in safetensors (https://github.com/huggingface/safetensors).
DTYPES = {
    "BOOL": DataType.BOOL,
    "U8": DataType.UINT8,
    "I8": DataType.INT8,
    "U16": DataType.UINT16,
    "I16": DataType.INT16,
    "U32": DataType.UINT32,
    "I32": DataType.INT32,
    "U64": DataType.UINT64,
    "I64": DataType.INT64,
    "F16": DataType.FLOAT16,
    "BF16": DataType.BFLOAT16,
    "F32": DataType.FLOAT,
    "F64": DataType.DOUBLE,
    "C64": DataType.COMPLEX64,
    "F8_E4M3": DataType.FLOAT8E4M3FN,
    "F8_E5M2": DataType.FLOAT8E5M2,
    "F8_E8M0": DataType.FLOAT8E8M0,
}


class _Comparison:
    """A writable object that compares the written bytes with the content of a file."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.equal = True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view) if self.equal else 0, PIECE_BYTES):
            piece = view[start : start + PIECE_BYTES]
            self.equal = self.equal and self._file.read(len(piece)) == piece
        return len(view)


def _holds(stored: StoredWeight, tensor: ir.TensorProtocol) -> bool:
    """Returns whether the file contains the values of ``tensor``, which must have this dtype and shape.

    Both are read once, in pieces.
    """
    with open(stored.path, "rb") as file:
        file.seek(stored.offset or 0)
        comparison = _Comparison(file)
        stream(tensor, comparison)
    return comparison.equal


# Files


@no_collection()
def stored_weights(source: str | os.PathLike[str], folder: Path) -> dict[str, StoredWeight]:
    """Returns the tensors of safetensors files by name, without reading any values.

    Args:
        source: a safetensors file, an index (``model.safetensors.index.json``), or a folder. Of a folder its index is
            used; without an index its ``model.safetensors``; without that file all its safetensors files.
        folder: the folder of the model. The files must be in this folder or below it.

    Raises:
        ArgumentError: a file does not exist, is outside the folder, or is not a complete safetensors file, or two files
            contain the same name.
    """
    weights: dict[str, StoredWeight] = {}
    try:
        files = _files(Path(source))
    except OSError as error:  # for example, the name is too long
        raise ArgumentError(
            f"weights_from: {shown(os.fspath(source))} cannot be read: {error.strerror}.", id=MessageId.WEIGHTS_FROM
        ) from error
    for path, wanted in files.items():
        location = _location(path, folder)
        for entry in _entries(path, location, folder):
            if wanted is not None and entry.name not in wanted:
                continue
            if entry.name in weights:
                raise ArgumentError(
                    f"The weight {entry.name!r} is in {os.fspath(weights[entry.name].location)!r} and in {location!r}; "
                    "give an index, which names one file for each weight.",
                    id=MessageId.WEIGHTS_FROM,
                )
            weights[entry.name] = entry
    return weights


def _files(source: Path) -> dict[Path, set[str] | None]:
    """Returns the safetensors files of ``source`` with the names to read from each. None means all names."""
    if source.is_dir():
        indices = sorted(source.glob(f"*{INDEX_SUFFIX}"))
        plain = source / "model.safetensors"
        if len(indices) > 1:
            raise ArgumentError(
                f"weights_from: {str(source)!r} has {len(indices)} indices; give one of them, such as "
                f"{indices[0].name!r}.",
                id=MessageId.WEIGHTS_FROM,
            )
        if not indices:
            files = [plain] if plain.exists() else sorted(source.glob("*.safetensors"))
            if not files:
                raise ArgumentError(
                    f"weights_from: there is no safetensors file in {str(source)!r}.", id=MessageId.WEIGHTS_FROM
                )
            return dict.fromkeys(files)
        source = indices[0]
    if not source.is_file():
        raise ArgumentError(f"weights_from: there is no file {str(source)!r}.", id=MessageId.WEIGHTS_FROM)
    return _indexed(source) if source.suffix == ".json" else {source: None}


def _indexed(index: Path) -> dict[Path, set[str] | None]:
    """Returns the files that an index names, with the names of the weights in each."""
    try:
        names: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
        files = {index.parent / file: {n for n in names if names[n] == file} for file in sorted(set(names.values()))}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ArgumentError(
            f"weights_from: {str(index)!r} is not an index of safetensors files: {error}.", id=MessageId.WEIGHTS_FROM
        ) from error
    for file in files:
        if not file.is_file():
            raise ArgumentError(
                f"weights_from: {str(index)!r} names {file.name!r}, which does not exist.", id=MessageId.WEIGHTS_FROM
            )
    return dict(files)


def _location(path: Path, folder: Path) -> str:
    """Returns the path of the file relative to the model's folder.

    Symbolic links are resolved, because a runtime resolves them before it checks that the file is in the folder.
    """
    base, real = folder.resolve(), path.resolve()
    if not real.is_relative_to(base):
        linked = " (through a link)" if path.is_symlink() else ""
        raise ArgumentError(
            f"The weights are in {str(real)!r}{linked}, outside of the model's folder {str(base)!r}, which ONNX does "
            "not allow; save the model to the folder of its weights or to a folder above it.",
            id=MessageId.WEIGHTS_FROM,
        )
    return real.relative_to(base).as_posix()


def _entries(path: Path, location: str, folder: Path) -> Iterator[StoredWeight]:
    """Yields the tensors in the file's header that have an ONNX dtype."""
    start, tensors = _header(path)
    for name, entry in tensors.items():
        begin, end = entry["data_offsets"]
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            continue
        shape = ir.Shape(entry["shape"], frozen=True)
        weight = StoredWeight(location, start + begin, end - begin, dtype, shape=shape, name=name, base_dir=folder)
        if weight.nbytes != end - begin:
            raise ArgumentError(
                f"The weight {name!r} in {str(path)!r} has {end - begin} bytes, but {_describe(weight)} needs "
                f"{weight.nbytes} bytes.",
                id=MessageId.WEIGHTS_FROM,
            )
        yield weight


def _header(path: Path) -> tuple[int, dict[str, Any]]:
    """Returns the offset of the data, and the dtype, shape and offsets of each tensor.

    The safetensors library checks the file. It does not return the offsets, so this function parses the header too. It
    names the weight at which a file ends too early, which the library does not.
    """
    from safetensors import SafetensorError, safe_open

    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            start = 8 + length
            if not 0 < length <= min(_MAX_HEADER_BYTES, size - 8):
                raise ValueError(f"the length of its header, {length} bytes, is not valid")
            header: dict[str, Any] = json.loads(file.read(length))
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        offsets = {name: entry["data_offsets"] for name, entry in tensors.items()}
        cut = [(name, start + end) for name, (begin, end) in offsets.items() if not 0 <= begin <= end <= size - start]
        if not cut:
            with safe_open(path, "numpy"):
                pass
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise ArgumentError(f"{str(path)!r} is not a safetensors file: {error}.", id=MessageId.WEIGHTS_FROM) from error
    for name, end in cut:
        raise ArgumentError(
            f"The weight {name!r} should end at byte {end} of {str(path)!r}, which has {size} bytes.",
            id=MessageId.WEIGHTS_FROM,
        )
    return start, tensors


def _describe(tensor: ir.TensorProtocol) -> str:
    """Returns the dtype and shape of a tensor as text, for example ``FLOAT[2, 3]``."""
    return f"{tensor.dtype.name}{list(tensor.shape.numpy())}"


# Models


class _Finder:
    """Finds the model's weights in the files, and reads each weight only once.

    Attributes:
        differing: the names of the weights whose values, dtype or shape differ in the files.
    """

    def __init__(self, stored: Mapping[str, StoredWeight], aliases: Mapping[str, Sequence[str]]) -> None:
        self._stored, self._aliases = stored, aliases
        self._known: dict[int, tuple[ir.TensorProtocol, ir.TensorProtocol]] = {}
        self.differing: list[str] = []

    def find(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        """Returns the tensor of the files that is equal to ``tensor``, or ``tensor`` itself if there is none.

        Raises:
            ArgumentError: ``tensor`` has no data, and it is not in the files or has another dtype or shape there.
        """
        if isinstance(tensor, LazyWeight):
            parts = [self.find(source) for source in tensor.sources]
            if tensor.run is not None and isinstance(parts[0], StoredWeight):
                return parts[0].run(tensor.run[1], tensor.shape.numpy(), str(tensor.name))
            return tensor.over(parts)
        if id(tensor) not in self._known:
            self._known[id(tensor)] = (tensor, self._find(tensor))
        return self._known[id(tensor)][1]

    def _find(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        name = str(tensor.name)
        entry = next((self._stored[n] for n in (name, *self._aliases.get(name, ())) if n in self._stored), None)
        if entry is None:
            if not has_data(tensor):
                raise ArgumentError(
                    f"The weight {name!r} has no data and is not in the files of weights_from.",
                    id=MessageId.WEIGHTS_FROM,
                )
            return tensor
        agrees = entry.dtype == tensor.dtype and entry.shape == tensor.shape
        if not agrees and not has_data(tensor):
            raise ArgumentError(
                f"The weight {name!r} is {_describe(tensor)} in the model, but {_describe(entry)} in "
                f"{os.fspath(entry.location)!r}.",
                id=MessageId.WEIGHTS_FROM,
            )
        if agrees and (not has_data(tensor) or _holds(entry, tensor)):
            return entry.named(name)
        self.differing.append(name)
        return tensor


@no_collection()
def by_reference(
    model: ir.Model, stored: Mapping[str, StoredWeight], aliases: Iterable[Sequence[str]] = ()
) -> tuple[ir.Model, list[str]]:
    """Returns a view of the model whose weights refer to the equal tensors in ``stored``. The model does not change.

    The view shares the nodes of the model, because a copy of them would take half of the time of a save.

    A weight that the optimizer transposed becomes a Transpose node of the stored weight. One that it cut out of a
    stored weight, such as the matrix of an expert, refers to its place in the file. Other computed weights are written
    to the model; they read the stored weights they are computed from if their own have no data.

    Args:
        model: the model, which does not change.
        stored: the tensors of the files, by name.
        aliases: groups of names that share one weight. The files may contain any name of a group.

    Returns:
        The view, and the names of the weights whose values, dtype or shape differ in the files.

    Raises:
        ArgumentError: a weight has no data, and it is not in the files or has another dtype or shape there.
    """
    finder = _Finder(stored, {name: group for group in aliases for name in group})
    if _in_bodies(model.graph):
        model = model.clone()  # because the nodes hold these initializers
    initializers = {str(value.name): twin_of(value) for value in model.graph.initializers.values()}
    transposes: list[ir.Node] = []
    for value in (*initializers.values(), *_in_bodies(model.graph)):
        tensor = value.const_value
        if tensor is None or isinstance(tensor, ir.StringTensor):
            continue
        if not isinstance(tensor, LazyWeight) or tensor.run is not None:
            stored_weight = finder.find(tensor)
            value.const_value = (
                stored_weight.named(str(value.name)) if isinstance(stored_weight, StoredWeight) else stored_weight
            )
            continue
        view = tensor.transposition()
        source = finder.find(view[0]) if view is not None else None
        if view is not None and isinstance(source, StoredWeight):
            transposes.append(restore_transpose(initializers, str(value.name), source, view[1]))
        elif not has_data(tensor):
            value.const_value = finder.find(tensor)
    return view_of(model, list(initializers.values()), [*reversed(transposes), *model.graph]), finder.differing


def _in_bodies(graph: ir.Graph) -> list[ir.Value]:
    """Returns the initializers of the subgraphs, which models of other exporters may have."""
    return all_initializers(graph)[len(graph.initializers) :]


# ---------------------------------------------------------------- saving


@contextmanager
def referring(
    model: ir.Model, path: Path, source: str | os.PathLike[str], tied: Iterable[Sequence[str]]
) -> Iterator[ir.Model]:
    """Yields a view of ``model`` that refers to the stored weights, and that is saved instead of ``model``.

    Saving may remove the data file that ``model`` reads. Afterwards ``model`` reads the same weights as the view.
    """
    stored = stored_weights(source, path.parent)
    for entry in stored.values():
        if reads(entry, path) or is_data_name(os.fspath(entry.location), path.name):
            raise ArgumentError(
                f"The model cannot be saved over the file {entry.path!r}, which holds its weights.", id=MessageId.FILE
            )
    pointing, differing = by_reference(model, stored, tied)
    if differing:
        warn(
            f"{len(differing)} weights are stored with the model, because their values, dtype or shape differ in the "
            f"files of weights_from: {', '.join(map(repr, differing[:5]))}{', ...' if len(differing) > 5 else ''}.",
            MessageId.WEIGHTS_FROM,
        )
    written = all_initializers(pointing.graph)
    if written and not differing and not any(isinstance(value.const_value, StoredWeight) for value in written):
        warn(
            "All weights are stored with the model, because none of them is in the files of weights_from.",
            MessageId.WEIGHTS_FROM,
        )
    shared = {id(value.const_value): value for value in written}
    originals = [value for value in all_initializers(model.graph) if id(value.const_value) in shared]
    pairs = [(value, shared[id(value.const_value)]) for value in originals]
    yield pointing
    for value, twin in pairs:
        value.const_value = twin.const_value
