"""Weights that lie in safetensors files already: a saved model points into these files instead of storing them again.

The format stores values row by row and little endian, as ONNX's external data does, so an entry of the same dtype and
shape holds the very bytes that a model would store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.weights import LazyWeight, has_data, stream
from fx_onnx.passes.weights.transposed_weights import restore_transpose

__all__ = ["StoredWeight", "by_reference", "stored_weights"]

INDEX_SUFFIX = ".safetensors.index.json"
PIECE_BYTES = 8 * 1024**2
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit

# safetensors' names of the types that both know (https://github.com/huggingface/safetensors).
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


class StoredWeight(ir.ExternalTensor):
    """A tensor in a safetensors file; ``location`` is relative to the folder of the model that will point to it."""

    def numpy(self) -> npt.NDArray[Any]:
        """The values, read anew each time: a mapped file would stay in memory."""
        data = np.fromfile(self.path, np.uint8, count=self.nbytes, offset=self.offset or 0)
        return data.view(self.dtype.numpy()).reshape(self.shape.numpy())

    def named(self, name: str) -> StoredWeight:
        """The same values under another name."""
        return StoredWeight(
            self.location, self.offset, self.length, self.dtype, shape=self.shape, name=name, base_dir=self.base_dir
        )

    def holds(self, tensor: ir.TensorProtocol) -> bool:
        """Whether the file has the values of ``tensor``, which has this dtype and shape; reads both once, in pieces."""
        with open(self.path, "rb") as file:
            file.seek(self.offset or 0)
            comparison = _Comparison(file)
            stream(tensor, comparison)
        return comparison.equal


class _Comparison:
    """A file to be written to that compares what it is given with what it holds."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.equal = True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view) if self.equal else 0, PIECE_BYTES):
            piece = view[start : start + PIECE_BYTES]
            self.equal = self.equal and self._file.read(len(piece)) == piece
        return len(view)


# Files


def stored_weights(source: str | os.PathLike[str], folder: Path) -> dict[str, StoredWeight]:
    """The tensors of safetensors files by name; no values are read.

    Args:
        source: a safetensors file, an index (``model.safetensors.index.json``), or a folder: its index if it has one,
            else its ``model.safetensors``, else all its safetensors files.
        folder: that of the model, in which the files must be, or below.

    Raises:
        ArgumentError: there is no such file, it is outside the folder, or it is not a whole safetensors file.
    """
    found: dict[str, StoredWeight] = {}
    for path, wanted in _files(Path(source)).items():
        location = _location(path, folder)
        for entry in _entries(path, location, folder):
            if wanted is not None and entry.name not in wanted:
                continue
            if entry.name in found:
                raise ArgumentError(
                    f"The weight {entry.name!r} is in {os.fspath(found[entry.name].location)!r} and in {location!r}: "
                    "give the index that says which one is meant."
                )
            found[entry.name] = entry
    return found


def _files(source: Path) -> dict[Path, set[str] | None]:
    """The safetensors files that ``source`` means, with the names to take from each (None: all)."""
    if source.is_dir():
        indices = sorted(source.glob(f"*{INDEX_SUFFIX}"))
        plain = source / "model.safetensors"
        if len(indices) > 1:
            raise ArgumentError(f"weights_from: {str(source)!r} has several indices, such as {indices[0].name!r}.")
        if not indices:
            files = [plain] if plain.exists() else sorted(source.glob("*.safetensors"))
            if not files:
                raise ArgumentError(f"weights_from: there is no safetensors file in {str(source)!r}.")
            return dict.fromkeys(files)
        source = indices[0]
    if not source.is_file():
        raise ArgumentError(f"weights_from: there is no file {str(source)!r}.")
    return _indexed(source) if source.suffix == ".json" else {source: None}


def _indexed(index: Path) -> dict[Path, set[str] | None]:
    try:
        names: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
        files = {index.parent / file: {n for n in names if names[n] == file} for file in sorted(set(names.values()))}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ArgumentError(f"weights_from: {str(index)!r} is not an index of safetensors files: {error}.") from error
    for file in files:
        if not file.is_file():
            raise ArgumentError(f"weights_from: {str(index)!r} names {file.name!r}, which is not there.")
    return dict(files)


def _location(path: Path, folder: Path) -> str:
    """Where the file lies, seen from the model; links are followed, as runtimes that guard the folder do."""
    base, real = folder.resolve(), path.resolve()
    if not real.is_relative_to(base):
        linked = " (through a link)" if path.is_symlink() else ""
        raise ArgumentError(
            f"The model would have to read {str(real)!r}{linked}, which is outside its folder {str(base)!r}: ONNX "
            "allows no such reference. Save the model in the folder of its weights, or above."
        )
    return real.relative_to(base).as_posix()


def _entries(path: Path, location: str, folder: Path) -> Iterator[StoredWeight]:
    """What the file's header says it holds, in the types that ONNX knows, checked against the file's size."""
    start, header = _header(path)
    size = path.stat().st_size
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end <= size - start:
            raise ArgumentError(
                f"The weight {name!r} should end at byte {start + end} of {str(path)!r}, which has {size} bytes."
            )
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            continue
        shape = ir.Shape(entry["shape"], frozen=True)
        found = StoredWeight(location, start + begin, end - begin, dtype, shape=shape, name=name, base_dir=folder)
        if found.nbytes != end - begin:
            raise ArgumentError(
                f"The weight {name!r} in {str(path)!r} takes {end - begin} bytes, but {described(found)} is "
                f"{found.nbytes} bytes."
            )
        yield found


def _header(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the data begins, and the header: what each tensor is and where it lies.

    The safetensors library checks the file, but does not say where a tensor lies, so the header is read besides.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(_MAX_HEADER_BYTES, path.stat().st_size - 8):
                raise ValueError(f"its header would have {length} bytes")
            header: dict[str, Any] = json.loads(file.read(length))
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        end = max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
        if 8 + length + end <= path.stat().st_size:  # else _entries says which weight is cut off
            with safe_open(path, "numpy"):
                pass
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        raise ArgumentError(f"{str(path)!r} is not a safetensors file: {error}.") from error
    return 8 + length, header


def described(tensor: ir.TensorProtocol) -> str:
    """The dtype and shape of a tensor: FLOAT[2, 3]."""
    return f"{tensor.dtype.name}{list(tensor.shape.numpy())}"


# Models


class _Finder:
    """Finds weights in the files; what it was asked once it need not read again."""

    def __init__(self, stored: Mapping[str, StoredWeight], aliases: Mapping[str, Sequence[str]]) -> None:
        self._stored, self._aliases = stored, aliases
        self._known: dict[int, tuple[ir.TensorProtocol, ir.TensorProtocol]] = {}
        self.differing: list[str] = []

    def find(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        """The tensor in the files that is the same as ``tensor``; ``tensor`` itself where there is none.

        Raises:
            ArgumentError: it has no data and is not in the files, or has another dtype or shape there.
        """
        if isinstance(tensor, LazyWeight):
            return tensor.over([self.find(source) for source in tensor.sources])
        if id(tensor) not in self._known:
            self._known[id(tensor)] = (tensor, self._find(tensor))
        return self._known[id(tensor)][1]

    def _find(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        name = str(tensor.name)
        entry = next((self._stored[n] for n in (name, *self._aliases.get(name, ())) if n in self._stored), None)
        if entry is None:
            if not has_data(tensor):
                raise ArgumentError(f"The weight {name!r} has no data and is not in the files of weights_from.")
            return tensor
        agrees = entry.dtype == tensor.dtype and entry.shape == tensor.shape
        if not agrees and not has_data(tensor):
            raise ArgumentError(
                f"The weight {name!r} is {described(tensor)} in the model, but {described(entry)} in "
                f"{os.fspath(entry.location)!r}."
            )
        if agrees and (not has_data(tensor) or entry.holds(tensor)):
            return entry.named(name)
        self.differing.append(name)
        return tensor


def by_reference(
    model: ir.Model, stored: Mapping[str, StoredWeight], aliases: Iterable[Sequence[str]] = ()
) -> tuple[ir.Model, list[str]]:
    """A copy of the model (not of its weights) with ``stored`` in the place of the weights that are the same.

    A transposed weight becomes a Transpose of the stored one; other computed weights read theirs when they are written.

    Args:
        model: stays as it is.
        stored: the tensors of the files, by name.
        aliases: groups of names of one tied weight, of which the files may have any.

    Returns:
        The model, and the names of the weights that have other values, another dtype or shape in the files.

    Raises:
        ArgumentError: a weight has no data and is not in the files, or has another dtype or shape there.
    """
    finder = _Finder(stored, {name: group for group in aliases for name in group})
    copy = model.clone()
    for value in [value for graph in copy.graphs() for value in graph.initializers.values()]:
        tensor = value.const_value
        if tensor is None or isinstance(tensor, ir.StringTensor):
            continue
        if not isinstance(tensor, LazyWeight):
            found = finder.find(tensor)
            value.const_value = found.named(str(value.name)) if isinstance(found, StoredWeight) else found
            continue
        view = tensor.transposition()
        source = finder.find(view[0]) if view is not None else None
        if view is not None and isinstance(source, StoredWeight):
            restore_transpose(value, source, view[1])
        elif not has_data(tensor):
            value.const_value = finder.find(tensor)
    return copy, finder.differing
