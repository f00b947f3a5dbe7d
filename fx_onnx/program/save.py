"""Writing a model to disk: streamed from the weights' own storages, and moved into place only when it is whole.

A model file is a protobuf message, whose fields may come in any order and whose lengths are known before any weight is
read. So the graph without its weights is serialised by onnx_ir, and the weights are appended to it one by one: memory
never holds a second copy of them, in one file or in two.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from fx_onnx.core.errors import ArgumentError, OnnxExporterError, OnnxExporterWarning
from fx_onnx.core.weights import LazyWeight, Weight, has_data, memory_key
from fx_onnx.program.streaming import Piece, length, write
from fx_onnx.program.weight_references import StoredWeight, by_reference, stored_weights

__all__ = ["Destination", "initializers", "parameter_bytes", "require_data", "save"]

Destination = str | os.PathLike[str] | BinaryIO

MAX_FILE_BYTES = 2**31 - 1
"""The longest message protobuf can read; a larger model must keep its weights in a second file."""
EXTERNAL_FROM_BYTES = 256
"""Smaller tensors stay in the model file: shape inference wants to read them, and they are no load."""
ALIGNMENT_BYTES = 64
"""Where a tensor may start in the data file, so that a runtime that maps the file gets aligned vectors."""

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
    """Writes ``model`` to a path or a binary file; the model in memory stays as it is, also when this fails.

    Files appear under their names only when they are whole. Where a model with a data file replaces an older model,
    the older one is moved away first: a kill in between leaves no model under the name (the older pair lies beside it,
    hidden), never a model with another's weights. A single file does not remove the data file of an earlier save.

    Args:
        model: what to write; weights are streamed, tied ones (the same memory) once in the data file.
        destination: a path in an existing folder, or a file object with ``write(bytes)``.
        include_initializers: whether the weights are written.
        keep_initializers_as_inputs: whether the initializers are graph inputs too, which a runtime may override.
        external_data: True for weights of 256 bytes and more in ``<name>.data``; None or False for a single file, but
            above protobuf's 2 GB there is no choice (False then warns).
        weights_from: a safetensors file, index or folder, to which the model points for all weights that it holds.
        tied: groups of names of one weight, of which ``weights_from`` may have any.

    Raises:
        ArgumentError: the path cannot be written, a weight has no data, ``weights_from`` does not fit, or a file object
            is given for what needs two files. Nothing has been written then.
        OnnxExporterError: writing failed on the way (a full disk); whatever was under the name before is still there.
    """
    options = _Options(include_initializers, keep_initializers_as_inputs)
    path = _checked_path(destination) if isinstance(destination, (str, os.PathLike)) else None
    if path is None and (isinstance(destination, io.TextIOBase) or not hasattr(destination, "write")):
        raise ArgumentError(
            f"The model can be saved to a path or a file opened in binary mode, not to {destination!r}."
        )
    if weights_from is not None:
        if path is None or _is_stream(path) or not include_initializers:
            raise ArgumentError("weights_from is for models that are saved to a path and with their initializers.")
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
            warnings.warn(
                f"A model above 2 GB does not fit a single ONNX file; its weights are in {path.name}.data.",
                OnnxExporterWarning,
                stacklevel=3,
            )
        _save_external(model, path, options)
    except OSError as error:
        kind = ArgumentError if isinstance(error, _BAD_PATH) else OnnxExporterError
        raise kind(f"The model could not be saved to {destination!r}: {error}.") from error


@contextmanager
def _by_reference(
    model: ir.Model, path: Path, source: str | os.PathLike[str], tied: Iterable[Sequence[str]]
) -> Iterator[ir.Model]:
    """The model to save in the place of ``model``, which goes on reading what saving may move."""
    stored = stored_weights(source, path.parent)
    for entry in stored.values():
        if any(_reads(entry, target) for target in (path, path.with_name(f"{path.name}.data"))):
            raise ArgumentError(f"The model cannot be saved over the file {entry.path!r}, which holds its weights.")
    pointing, differing = by_reference(model, stored, tied)
    if differing:
        warnings.warn(
            f"{len(differing)} weights have other values, another dtype or shape in the files of weights_from, and are "
            f"stored with the model: {', '.join(map(repr, differing[:5]))}{', ...' if len(differing) > 5 else ''}.",
            OnnxExporterWarning,
            stacklevel=5,
        )
    shared = {id(value.const_value): value for value in initializers(pointing)}
    pairs = [(value, shared[id(value.const_value)]) for value in initializers(model) if id(value.const_value) in shared]
    yield pointing
    for value, twin in pairs:
        value.const_value = twin.const_value  # the data file that it was read from may have been replaced


@dataclass(frozen=True)
class _Options:
    """Which initializers appear in the file, and as what."""

    include: bool
    as_inputs: bool


def initializers(model: ir.Model) -> list[ir.Value]:
    """The initializers of the model's graph and of all its subgraphs, in order."""
    return [value for graph in model.graphs() for value in graph.initializers.values()]


def parameter_bytes(model: ir.Model) -> int:
    """The size of all initializers in bytes."""
    return sum(value.const_value.nbytes for value in initializers(model) if value.const_value is not None)


def require_data(model: ir.Model) -> None:
    """Refuses a model some weight of which cannot be read.

    Raises:
        ArgumentError: names the first weight without data.
    """
    _require_data(initializers(model))


def _require_data(values: Iterable[ir.Value]) -> None:
    for value in values:
        if value.const_value is None or not has_data(value.const_value):
            raise ArgumentError(
                f"The weight {value.name!r} has no data (it was a FakeTensor or on the meta device): give it data with "
                "ONNXProgram.apply_weights(state_dict), or save with include_initializers=False."
            )


def _nested(model: ir.Model) -> list[ir.Value]:
    """The initializers of subgraphs, which always stay: nothing can provide them from outside."""
    return [value for graph in model.graph.subgraphs() for value in graph.initializers.values()]


# The model as bytes and tensors


def _single_file(model: ir.Model, options: _Options) -> list[Piece]:
    """The pieces of the one file, in order: the graph, then each initializer's head and its values."""
    marks = _marks(model)
    streamed = {str(value.name): value.const_value for value in marks}
    proto = _serialised(model, marks, options)
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


def _marks(model: ir.Model) -> dict[ir.Value, ir.TensorProtocol]:
    """Stand-ins for the graph's initializers; not for strings, which have no raw form, whole messages, references."""
    kept = (ir.StringTensor, ir.serde.TensorProtoTensor, StoredWeight)
    values = model.graph.initializers.values()
    return {value: _marker(value, "", 0) for value in values if not isinstance(value.const_value, kept)}


def _header(field: int, length: int) -> bytes:
    """What protobuf writes before a length-delimited field: its number, wire type 2, and its length, as varints."""
    return _varint(field << 3 | 2) + _varint(length)


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _marker(value: ir.Value, location: str, offset: int) -> ir.TensorProtocol:
    """A tensor that serialises to the initializer's name, dtype, dims and place, without any data."""
    tensor = value.const_value
    shape = tensor.shape if tensor is not None else value.shape
    dtype = tensor.dtype if tensor is not None else value.dtype
    if shape is None or dtype is None or not isinstance(shape, ir.Shape) or not shape.is_static():
        raise ArgumentError(f"The initializer {value.name!r} has neither data nor a known shape and dtype.")
    length = None if tensor is None else tensor.nbytes
    return ir.ExternalTensor(location, offset, length, dtype, shape=shape, name=str(value.name))


def _serialised(model: ir.Model, patches: Mapping[ir.Value, ir.TensorProtocol], options: _Options) -> onnx.ModelProto:
    """The model's message, with ``patches`` for the data of its initializers."""
    with _replaced(patches):
        proto = ir.serde.serialize_model(model)
    if options.as_inputs:
        _move_to_inputs(proto.graph)
    if not options.include:
        del proto.graph.initializer[:]
    return proto


@contextmanager
def _replaced(patches: Mapping[ir.Value, ir.TensorProtocol]) -> Iterator[None]:
    """Gives values other data for as long as onnx_ir serialises them; it takes a model only whole."""
    before = [(value, value.const_value) for value in patches]
    try:
        for value, tensor in patches.items():
            value.const_value = tensor
        yield
    finally:
        for value, original in before:
            value.const_value = original


def _move_to_inputs(graph: onnx.GraphProto) -> None:
    """Makes every initializer a graph input as well, after the inputs that are there."""
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
class _Place:
    """Where a tensor lies in the data file; ``first`` is false of a tied weight that is written already."""

    value: ir.Value
    tensor: ir.TensorProtocol
    offset: int
    first: bool


def _places(model: ir.Model) -> list[_Place]:
    """A place for every initializer that goes to the data file; what shares memory shares its place."""
    places: list[_Place] = []
    offsets: dict[Hashable, int] = {}
    end = 0
    for value in initializers(model):
        tensor = value.const_value
        if tensor is None or isinstance(tensor, (ir.StringTensor, StoredWeight)) or tensor.nbytes < EXTERNAL_FROM_BYTES:
            continue
        key = _identity(tensor)
        if key in offsets:
            places.append(_Place(value, tensor, offsets[key], first=False))
            continue
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        offsets[key] = offset
        places.append(_Place(value, tensor, offset, first=True))
        end = offset + tensor.nbytes
    return places


def _data_file(places: Sequence[_Place]) -> list[Piece]:
    """The pieces of the data file, in order: zeros up to where a tensor starts, and its values."""
    pieces: list[Piece] = []
    end = 0
    for place in places:
        if place.first:
            pieces += [bytes(place.offset - end), place.tensor]
            end = place.offset + place.tensor.nbytes
    return pieces


def _identity(tensor: ir.TensorProtocol) -> Hashable:
    if isinstance(tensor, Weight):
        return memory_key(tensor.raw)
    if isinstance(tensor, ir.ExternalTensor):
        return tensor.path, tensor.offset, tensor.length, tensor.dtype, tuple(tensor.shape)
    return id(tensor)


def _save_external(model: ir.Model, path: Path, options: _Options) -> None:
    """Two files: the model, and its larger initializers beside it."""
    places = _places(model) if options.include else []
    location = f"{path.name}.data"
    data_path = _followed(path.with_name(location))
    chosen = {place.value: _marker(place.value, location, place.offset) for place in places}
    if not options.include:
        chosen = _marks(model)
    proto = _serialised(model, chosen, options)
    overwritten = _moved_tensors(model, chosen, data_path, path.parent) if places else {}
    with ExitStack() as stack:
        staged: list[_Staged] = []
        if places:
            staged.append(stack.enter_context(_staged(data_path)))
            with staged[-1].temporary.open("wb") as file:
                write(_data_file(places), file)
        staged.append(stack.enter_context(_staged(_followed(path))))
        staged[-1].temporary.write_bytes(proto.SerializeToString())
        _move_into_place(staged)
    for value, tensor in overwritten.items():
        value.const_value = tensor


def _moved_tensors(
    model: ir.Model, chosen: Mapping[ir.Value, ir.TensorProtocol], data_path: Path, folder: Path
) -> dict[ir.Value, ir.TensorProtocol]:
    """What the initializers that read from the file about to be replaced must read from afterwards: the same values."""
    moved: dict[ir.Value, ir.TensorProtocol] = {}
    for value in initializers(model):
        tensor = value.const_value
        if tensor is None or not _reads(tensor, data_path):
            continue
        place = chosen.get(value)
        if isinstance(place, ir.ExternalTensor):
            place.base_dir = folder
            moved[value] = place
        else:  # too small for the data file: into memory
            moved[value] = ir.Tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=value.name)
    return moved


def _reads(tensor: ir.TensorProtocol, path: Path) -> bool:
    """Whether the values come from the file at ``path``."""
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
    """A file being written under a temporary name in the folder of the name it is for."""

    temporary: Path
    target: Path


def _checked_path(destination: str | os.PathLike[str]) -> Path:
    path = Path(destination)
    if path.is_dir():
        raise ArgumentError(f"The model cannot be saved to {os.fspath(path)!r}: it is a folder.")
    if not path.parent.is_dir():
        raise ArgumentError(f"The model cannot be saved to {os.fspath(path)!r}: there is no such folder.")
    return path


def _followed(path: Path) -> Path:
    """A link is written through, as open() does, and not replaced by a file."""
    return path.resolve() if path.is_symlink() else path


def _is_stream(path: Path) -> bool:
    """Whether the path is a device or a pipe, which must be written to and cannot be replaced."""
    return path.exists() and not path.is_file()


def _save_single(model: ir.Model, destination: Destination, path: Path | None, options: _Options) -> bool:
    """One file with everything in it; False, and nothing done, if protobuf could not read it back."""
    pieces = _single_file(model, options)
    if length(pieces) > MAX_FILE_BYTES:
        return False
    if path is None:
        write(pieces, destination)
    elif _is_stream(path):
        with path.open("wb") as file:
            write(pieces, file)
    else:
        with _staged(_followed(path)) as staged:
            with staged.temporary.open("wb") as file:
                write(pieces, file)
            _move_into_place([staged])
    return True


@contextmanager
def _staged(target: Path) -> Iterator[_Staged]:
    """A temporary name beside ``target``, removed at the end if it was not moved away."""
    temporary = _beside(target, "new")
    try:
        yield _Staged(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(target: Path, purpose: str) -> Path:
    """A hidden name that is not taken, in the same folder and so on the same file system."""
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.{purpose}")


def _move_into_place(staged: Sequence[_Staged]) -> None:
    """Gives finished files their names, all or none; the last one, the model, goes first and comes last."""
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
                backups.append(_beside(file.target, "old"))
                os.replace(file.target, backups[-1])
                undo.callback(os.replace, backups[-1], file.target)
        for file in staged:
            os.replace(file.temporary, file.target)
            undo.callback(file.target.unlink)
        undo.pop_all()
    for backup in backups:
        backup.unlink(missing_ok=True)
