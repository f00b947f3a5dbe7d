"""Saves a model: streams the weights to a temporary file and moves it into place when it is complete.

A model file is a protobuf message. The fields of a message may have any order, and their lengths are known before any
weight is read. Therefore onnx_ir serializes the graph without its weights, and this module appends the weights one by
one. Memory never holds a second copy of the weights.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from fx_onnx.core.errors import ArgumentError, OnnxExporterError, warn
from fx_onnx.core.weights import LazyWeight, Weight, has_data, memory_key
from fx_onnx.program.streaming import Piece, length, write
from fx_onnx.program.weight_references import StoredWeight, by_reference, stored_weights

__all__ = ["Destination", "initializers", "parameter_bytes", "require_data", "save"]

Destination = str | os.PathLike[str] | BinaryIO

MAX_FILE_BYTES = 2**31 - 1
"""The longest message that protobuf can read. A larger model needs a second file for its weights."""
EXTERNAL_FROM_BYTES = 256
"""Smaller tensors stay in the model file, because shape inference may read them and they take little space."""
ALIGNMENT_BYTES = 64
"""The alignment of tensors in the data file. A runtime that maps the file into memory gets aligned vectors."""

_MODEL_FIELDS = onnx.ModelProto.DESCRIPTOR.fields_by_name
_GRAPH_FIELDS = onnx.GraphProto.DESCRIPTOR.fields_by_name
_TENSOR_FIELDS = onnx.TensorProto.DESCRIPTOR.fields_by_name
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
) -> None:
    """Writes ``model`` to a path or a binary file. The model in memory does not change, even if this fails.

    A file gets its final name only when it is complete. If a model with a data file replaces an older model, the older
    model is moved away first. A process that is killed in between leaves no model under the name (the older files are
    beside it under hidden names), and never a model with another model's weights. Saving a single file does not remove
    the data file of an earlier save.

    Args:
        model: the model. Tied weights, which share memory, appear once in the data file.
        destination: a path in an existing folder, or a file object with ``write(bytes)``.
        include_initializers: whether the weights are written.
        keep_initializers_as_inputs: whether the weights are graph inputs too, so that a runtime may override them.
        external_data: True writes weights of 256 bytes and more to ``<name>.data``. None and False write a single file.
            Above the 2 GB limit of protobuf the data file is always written; False then warns.
        weights_from: a safetensors file, index or folder. The model refers to it for all weights that it contains.
        tied: groups of names that share one weight. ``weights_from`` may contain any name of a group.

    Raises:
        ArgumentError: the path cannot be written, a weight has no data, ``weights_from`` does not fit, or the model
            needs two files but the destination is a file object. Nothing is written.
        OnnxExporterError: writing failed, for example because the disk is full. An older file with this name remains.
    """
    options = _Options(include_initializers, keep_initializers_as_inputs)
    path = _checked_path(destination) if isinstance(destination, (str, os.PathLike)) else None
    if path is None and (isinstance(destination, io.TextIOBase) or not hasattr(destination, "write")):
        raise ArgumentError(
            f"The model can be saved to a path or a file opened in binary mode, not to {destination!r}."
        )
    if weights_from is not None:
        if path is None or _is_stream(path) or not include_initializers:
            raise ArgumentError("weights_from needs a path as the destination, and include_initializers=True.")
        with _by_reference(model, path, weights_from, tied) as pointing:
            save(pointing, path, keep_initializers_as_inputs=keep_initializers_as_inputs, external_data=external_data)
        return
    _require_data(initializers(model) if include_initializers else _nested(model))
    try:
        if not external_data and _save_single(model, destination, path, options):
            return
        if path is None or _is_stream(path):
            raise ArgumentError("External data and models above 2 GB need a file path, not a stream.")
        if external_data is False:
            warn(f"A model above 2 GB does not fit into a single ONNX file; its weights are in {path.name}.data.")
        _save_external(model, path, options)
    except OSError as error:
        kind = ArgumentError if isinstance(error, _BAD_PATH) else OnnxExporterError
        raise kind(f"The model could not be saved to {destination!r}: {error}.") from error


@contextmanager
def _by_reference(
    model: ir.Model, path: Path, source: str | os.PathLike[str], tied: Iterable[Sequence[str]]
) -> Iterator[ir.Model]:
    """Yields a copy of ``model`` that refers to the stored weights, and that is saved instead of ``model``.

    Saving may replace the data file that ``model`` reads. Afterwards ``model`` reads the same weights as the copy.
    """
    stored = stored_weights(source, path.parent)
    for entry in stored.values():
        if any(_reads(entry, target) for target in (path, path.with_name(f"{path.name}.data"))):
            raise ArgumentError(f"The model cannot be saved over the file {entry.path!r}, which holds its weights.")
    pointing, differing = by_reference(model, stored, tied)
    if differing:
        warn(
            f"{len(differing)} weights are stored with the model, because their values, dtype or shape differ in the "
            f"files of weights_from: {', '.join(map(repr, differing[:5]))}{', ...' if len(differing) > 5 else ''}."
        )
    shared = {id(value.const_value): value for value in initializers(pointing)}
    pairs = [(value, shared[id(value.const_value)]) for value in initializers(model) if id(value.const_value) in shared]
    yield pointing
    for value, twin in pairs:
        value.const_value = twin.const_value


@dataclass(frozen=True)
class _Options:
    """Whether the initializers are written, and whether they are graph inputs too."""

    include: bool
    as_inputs: bool


def initializers(model: ir.Model) -> list[ir.Value]:
    """Returns the initializers of the main graph and of all subgraphs, in order."""
    return [value for graph in model.graphs() for value in graph.initializers.values()]


def parameter_bytes(model: ir.Model) -> int:
    """Returns the size of all initializers in bytes."""
    return sum(value.const_value.nbytes for value in initializers(model) if value.const_value is not None)


def require_data(model: ir.Model) -> None:
    """Checks that every weight of the model has data.

    Raises:
        ArgumentError: a weight has no data; the message names the first one.
    """
    _require_data(initializers(model))


def _require_data(values: Iterable[ir.Value]) -> None:
    for value in values:
        if value.const_value is None or not has_data(value.const_value):
            raise ArgumentError(
                f"The weight {value.name!r} has no data, because it was a FakeTensor or on the meta device; give it "
                "data with ONNXProgram.apply_weights(state_dict), or save with include_initializers=False."
            )


def _nested(model: ir.Model) -> list[ir.Value]:
    """Returns the initializers of subgraphs. They are always written, because they cannot be graph inputs."""
    return [value for graph in model.graph.subgraphs() for value in graph.initializers.values()]


# The model as bytes and tensors


def _single_file(model: ir.Model, options: _Options) -> list[Piece]:
    """Returns the pieces of a single file, in order: the graph, then the header and the data of each initializer."""
    placeholders = _placeholders(model)
    streamed = {str(value.name): value.const_value for value in placeholders}
    proto = _serialized(model, placeholders, options)
    pieces: list[Piece] = []
    total = 0
    for initializer in proto.graph.initializer:
        tensor = streamed.get(initializer.name)
        if tensor is None:
            body = initializer.SerializeToString()
        else:
            initializer.ClearField("external_data")
            initializer.ClearField("data_location")
            body = initializer.SerializeToString() + _header(_TENSOR_FIELDS["raw_data"].number, tensor.nbytes)
        size = len(body) + (0 if tensor is None else tensor.nbytes)
        head = _header(_GRAPH_FIELDS["initializer"].number, size) + body
        pieces += [head] if tensor is None else [head, tensor]
        total += len(head) + size - len(body)
    del proto.graph.initializer[:]
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    start = proto.SerializeToString() + _header(_MODEL_FIELDS["graph"].number, len(graph) + total) + graph
    return [start, *pieces]


def _placeholders(model: ir.Model) -> dict[ir.Value, ir.TensorProtocol]:
    """Returns a placeholder for each initializer whose data is streamed.

    onnx_ir serializes the others itself: strings have no raw data, a TensorProtoTensor is a message already, and a
    StoredWeight is a reference to a file.
    """
    kept = (ir.StringTensor, ir.serde.TensorProtoTensor, StoredWeight)
    values = model.graph.initializers.values()
    return {value: _placeholder(value, "", 0) for value in values if not isinstance(value.const_value, kept)}


def _header(field: int, length: int) -> bytes:
    """Returns the header of a length-delimited protobuf field: its number with wire type 2, and its length."""
    return _varint(field << 3 | 2) + _varint(length)


def _varint(number: int) -> bytes:
    """Returns the base-128 encoding of protobuf: seven bits a byte, the lowest first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _placeholder(value: ir.Value, location: str, offset: int) -> ir.TensorProtocol:
    """Returns a tensor that serializes to the initializer's name, dtype, dims and location, without data."""
    tensor = value.const_value
    shape = tensor.shape if tensor is not None else value.shape
    dtype = tensor.dtype if tensor is not None else value.dtype
    if shape is None or dtype is None or not isinstance(shape, ir.Shape) or not shape.is_static():
        raise ArgumentError(f"The initializer {value.name!r} has neither data nor a known shape and dtype.")
    length = None if tensor is None else tensor.nbytes
    return ir.ExternalTensor(location, offset, length, dtype, shape=shape, name=str(value.name))


def _serialized(
    model: ir.Model, placeholders: Mapping[ir.Value, ir.TensorProtocol], options: _Options
) -> onnx.ModelProto:
    """Returns the protobuf message of the model, with the placeholders instead of the initializers' data."""
    with _replaced(placeholders):
        proto = ir.serde.serialize_model(model)
    if options.as_inputs:
        _move_to_inputs(proto.graph)
    if not options.include:
        del proto.graph.initializer[:]
    return proto


@contextmanager
def _replaced(placeholders: Mapping[ir.Value, ir.TensorProtocol]) -> Iterator[None]:
    """Replaces initializers temporarily, because onnx_ir can only serialize a whole model."""
    before = [(value, value.const_value) for value in placeholders]
    try:
        for value, tensor in placeholders.items():
            value.const_value = tensor
        yield
    finally:
        for value, original in before:
            value.const_value = original


def _move_to_inputs(graph: onnx.GraphProto) -> None:
    """Adds every initializer to the graph inputs, after the existing inputs."""
    known = {info.name: info for info in graph.value_info}
    present = {info.name for info in graph.input}
    names = [tensor.name for tensor in graph.initializer if tensor.name not in present]
    for tensor in graph.initializer:
        if tensor.name not in present:
            made = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            graph.input.append(known.get(tensor.name, made))
    others = [info for name, info in known.items() if name not in set(names)]
    del graph.value_info[:]
    graph.value_info.extend(others)


# The data file


@dataclass(frozen=True)
class _DataLocation:
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


def _data_locations(model: ir.Model) -> list[_DataLocation]:
    """Returns the location of each initializer in the data file. Initializers that share memory share a location."""
    locations: list[_DataLocation] = []
    offsets: dict[Hashable, int] = {}
    end = 0
    for value in initializers(model):
        tensor = value.const_value
        if tensor is None or isinstance(tensor, (ir.StringTensor, StoredWeight)) or tensor.nbytes < EXTERNAL_FROM_BYTES:
            continue
        key = _identity(tensor)
        if key in offsets:
            locations.append(_DataLocation(value, tensor, offsets[key], first=False))
            continue
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        offsets[key] = offset
        locations.append(_DataLocation(value, tensor, offset, first=True))
        end = offset + tensor.nbytes
    return locations


def _data_file(locations: Sequence[_DataLocation]) -> list[Piece]:
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


def _save_external(model: ir.Model, path: Path, options: _Options) -> None:
    """Writes two files: the model, and its larger initializers beside it."""
    locations = _data_locations(model) if options.include else []
    data_name = f"{path.name}.data"
    data_path = _link_target(path.with_name(data_name))
    chosen = {each.value: _placeholder(each.value, data_name, each.offset) for each in locations}
    if not options.include:
        chosen = _placeholders(model)
    proto = _serialized(model, chosen, options)
    overwritten = _redirected_tensors(model, chosen, data_path, path.parent) if locations else {}
    with ExitStack() as stack:
        staged: list[_Staged] = []
        if locations:
            staged.append(stack.enter_context(_staged(data_path)))
            with staged[-1].temporary.open("wb") as file:
                write(_data_file(locations), file)
        staged.append(stack.enter_context(_staged(_link_target(path))))
        staged[-1].temporary.write_bytes(proto.SerializeToString())
        _move_into_place(staged)
    for value, tensor in overwritten.items():
        value.const_value = tensor


def _redirected_tensors(
    model: ir.Model, chosen: Mapping[ir.Value, ir.TensorProtocol], data_path: Path, folder: Path
) -> dict[ir.Value, ir.TensorProtocol]:
    """Returns new tensors for the initializers that read from the data file, because saving replaces that file.

    The new tensors have the same values: they read from the new data file, or from memory.
    """
    redirected: dict[ir.Value, ir.TensorProtocol] = {}
    for value in initializers(model):
        tensor = value.const_value
        if tensor is None or not _reads(tensor, data_path):
            continue
        external = chosen.get(value)
        if isinstance(external, ir.ExternalTensor):
            external.base_dir = folder
            redirected[value] = external
        else:  # the new data file does not contain tensors this small
            redirected[value] = ir.Tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=value.name)
    return redirected


def _reads(tensor: ir.TensorProtocol, path: Path) -> bool:
    """Returns whether the values come from the file at ``path``."""
    if isinstance(tensor, LazyWeight):
        return any(_reads(source, path) for source in tensor.sources)
    if not isinstance(tensor, ir.ExternalTensor):
        return False
    with suppress(FileNotFoundError):
        return os.path.samefile(tensor.path, path)
    return False


# Files


@dataclass(frozen=True)
class _Staged:
    """A file that is written under a temporary name, in the folder of its final name."""

    temporary: Path
    target: Path


def _checked_path(destination: str | os.PathLike[str]) -> Path:
    """Returns the destination as a Path, or raises ArgumentError if no file can be created there."""
    path = Path(destination)
    if path.is_dir():
        raise ArgumentError(f"The model cannot be saved to {os.fspath(path)!r}: it is a folder.")
    if not path.parent.is_dir():
        raise ArgumentError(f"The model cannot be saved to {os.fspath(path)!r}: there is no such folder.")
    return path


def _link_target(path: Path) -> Path:
    """Returns the target of a symbolic link, so that the link remains and its target is written, as with open()."""
    return path.resolve() if path.is_symlink() else path


def _is_stream(path: Path) -> bool:
    """Returns whether the path is a device or a pipe, which is written directly and cannot be replaced."""
    return path.exists() and not path.is_file()


def _save_single(model: ir.Model, destination: Destination, path: Path | None, options: _Options) -> bool:
    """Writes a single file and returns True, or does nothing and returns False if the file is too long for protobuf."""
    pieces = _single_file(model, options)
    if length(pieces) > MAX_FILE_BYTES:
        return False
    if path is None:
        write(pieces, destination)
    elif _is_stream(path):
        with path.open("wb") as file:
            write(pieces, file)
    else:
        with _staged(_link_target(path)) as staged:
            with staged.temporary.open("wb") as file:
                write(pieces, file)
            _move_into_place([staged])
    return True


@contextmanager
def _staged(target: Path) -> Iterator[_Staged]:
    """Yields a temporary name beside ``target``. The temporary file is removed at the end if it still exists."""
    temporary = _hidden_name(target, "new")
    try:
        yield _Staged(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _hidden_name(target: Path, purpose: str) -> Path:
    """Returns an unused hidden name in the folder of ``target``, which is on the same file system."""
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.{purpose}")


def _move_into_place(staged: Sequence[_Staged]) -> None:
    """Gives complete files their final names, either all of them or none.

    The last file is the model. Move the old model away first and install the new one last, so that a crash never pairs
    a model with another model's weights.
    """
    for file in staged:
        if file.target.exists():
            shutil.copymode(file.target, file.temporary)
    if len(staged) == 1:
        os.replace(staged[0].temporary, staged[0].target)
        return
    backups: list[Path] = []
    with ExitStack() as undo:
        for file in reversed(staged):
            if file.target.exists():
                backups.append(_hidden_name(file.target, "old"))
                os.replace(file.target, backups[-1])
                undo.callback(os.replace, backups[-1], file.target)
        for file in staged:
            os.replace(file.temporary, file.target)
            undo.callback(file.target.unlink)
        undo.pop_all()
    for backup in backups:
        backup.unlink(missing_ok=True)
