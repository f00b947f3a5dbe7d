"""A model as a protobuf message: the pieces of a file, and the names of the files that a saved model reads.

The fields of a message may have any order, and their lengths are known before any weight is read. Therefore onnx_ir
serializes the graph without its weights, and the weights are appended one by one. Memory never holds a second copy of
the weights, whereas onnx and protobuf write and read only whole messages.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError, Message

from fx_onnx.files.metadata_levels import graphs_in, remove_metadata, remove_metadata_of_declarations
from fx_onnx.files.stored_weight import StoredWeight
from fx_onnx.files.streaming import Piece, length
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.source_lines import traced_lines
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.weights import is_of_state_dict
from fx_onnx.passes.traversal import all_nodes, graphs_of
from fx_onnx.torch_internals.garbage import no_collection

__all__ = [
    "Contents",
    "add_doc_strings",
    "drop_initializer_infos",
    "graph_text",
    "placeholder",
    "placeholders",
    "referenced_files",
    "serialized",
    "single_file",
    "weights",
]

_ENTRIES_AT_ONCE = 1024


@dataclass(frozen=True)
class Contents:
    """Which parts of a model are written.

    Attributes:
        initializers: whether the weights are written. If not, they are graph inputs, and the constants are written.
        as_inputs: whether the weights are graph inputs too. Constants are not: ONNX Runtime takes a constant that may
            be overridden for a default, such as 1e-5 for the epsilon of a layer norm, and computes wrong results.
        metadata: how much the model tells about the code that it comes from; one of ``metadata_levels.LEVELS``.
    """

    initializers: bool = True
    as_inputs: bool = False
    metadata: str = "full"

    def removed(self, model: ir.Model) -> set[ir.Value]:
        """Returns the initializers that are not written."""
        return set() if self.initializers else set(weights(model))


# Writing


@no_collection()
def single_file(model: ir.Model, contents: Contents) -> list[Piece]:
    """Returns the pieces of a single file, in order: the graph, then the header and the data of each initializer."""
    chosen = placeholders(model)
    streamed = {str(value.name): value.const_value for value in chosen}
    proto = serialized(model, chosen, contents)
    initializers: list[Piece] = []
    for initializer in proto.graph.initializer:
        initializers += _field(onnx.GraphProto, "initializer", _tensor(initializer, streamed.get(initializer.name)))
    del proto.graph.initializer[:]
    graph = _graph(proto.graph)
    proto.ClearField("graph")
    return [proto.SerializeToString(), *_field(onnx.ModelProto, "graph", [*graph, *initializers])]


def _tensor(message: onnx.TensorProto, data: ir.TensorProtocol | None) -> list[Piece]:
    """Returns the message of a tensor in pieces. If there is ``data``, it is the values of a placeholder."""
    if data is None:
        return [message.SerializeToString()]
    message.ClearField("external_data")
    message.ClearField("data_location")
    return [message.SerializeToString(), *_field(onnx.TensorProto, "raw_data", [data])]


def _graph(graph: onnx.GraphProto) -> list[bytes]:
    """Returns the message of a graph in pieces, and removes its nodes and value_info.

    Protobuf needs twice the memory of the bytes that it makes at once, so the longest fields are made in pieces.
    """
    pieces: list[bytes] = []
    for field in ("node", "value_info"):
        entries = getattr(graph, field)
        for start in range(0, len(entries), _ENTRIES_AT_ONCE):
            part = onnx.GraphProto(**{field: entries[start : start + _ENTRIES_AT_ONCE]})
            pieces.append(part.SerializeToString())
        graph.ClearField(field)
    return [graph.SerializeToString(), *pieces]


def placeholders(model: ir.Model) -> dict[ir.Value, ir.TensorProtocol]:
    """Returns a placeholder for each initializer of the graph whose data is streamed.

    onnx_ir serializes the others itself: strings have no raw data, a TensorProtoTensor is a message already, and a
    StoredWeight is a reference to a file.
    """
    kept = (ir.StringTensor, ir.serde.TensorProtoTensor, StoredWeight)
    values = model.graph.initializers.values()
    return {value: placeholder(value, "", 0) for value in values if not isinstance(value.const_value, kept)}


def _field(message: type[Message], name: str, content: Sequence[Piece]) -> list[Piece]:
    """Returns a field in pieces: its number with the wire type 2, the length of the content, and the content."""
    key = message.DESCRIPTOR.fields_by_name[name].number << 3 | 2
    return [_varint(key) + _varint(length(content)), *content]


def _varint(number: int) -> bytes:
    """Returns the encoding of an integer in protobuf: a message with only this integer, without the field's number."""
    return bytes(onnx.OperatorSetIdProto(version=number).SerializeToString()[1:])


def placeholder(value: ir.Value, location: str, offset: int, folder: Path | str = "") -> ir.ExternalTensor:
    """Returns a tensor that serializes to the initializer's name, dtype, dims and location, without data.

    When the file at ``location`` in ``folder`` exists, the tensor can be read.
    """
    tensor = value.const_value
    shape = tensor.shape if tensor is not None else value.shape
    dtype = tensor.dtype if tensor is not None else value.dtype
    if shape is None or dtype is None or not isinstance(shape, ir.Shape) or not shape.is_static():
        raise ArgumentError(
            f"The initializer {value.name!r} has neither data nor a known shape and dtype; give it a const_value.",
            id=MessageId.WEIGHT_WITHOUT_DATA,
        )
    size = None if tensor is None else tensor.nbytes
    return ir.ExternalTensor(location, offset, size, dtype, shape=shape, name=str(value.name), base_dir=folder)


@no_collection()
def serialized(model: ir.Model, chosen: Mapping[ir.Value, ir.TensorProtocol], contents: Contents) -> onnx.ModelProto:
    """Returns the protobuf message of the model, with the chosen placeholders instead of the initializers' data.

    The model does not change meanwhile, so that other threads can save it or run it.
    """
    initializers = {value: twin_of(value) for value in model.graph.initializers.values()}
    for value, twin in initializers.items():
        twin.const_value = chosen.get(value, value.const_value)
    removed = contents.removed(model)
    as_inputs = [initializers[value] for value in weights(model)] if contents.as_inputs or removed else []
    for twin in as_inputs:
        if twin.type is None or twin.shape is None:
            tensor = placeholder(twin, "", 0)
            twin.type, twin.shape = ir.TensorType(tensor.dtype), tensor.shape
    names = {twin.name for twin in as_inputs}
    inputs = [*(value for value in model.graph.inputs if value.name not in names), *as_inputs]
    written = [twin for value, twin in initializers.items() if value not in removed]
    with _replaced({value: tensor for value, tensor in chosen.items() if value not in initializers}):
        proto = ir.serde.serialize_model(view_of(model, written, list(model.graph), inputs))
    drop_initializer_infos(proto.graph)
    remove_metadata(proto, contents.metadata)
    if model.meta.get(metadata.BARE_DECLARATIONS):
        remove_metadata_of_declarations(proto.graph)
    return proto


def weights(model: ir.Model) -> list[ir.Value]:
    """Returns the initializers that come from the state_dict of the exported module, in its order.

    The others are constants. In a model of another source, all initializers count as weights.
    """
    values = list(model.graph.initializers.values())
    if metadata.GRAPH_SIGNATURE not in model.graph.metadata_props:
        return values
    return [value for value in values if is_of_state_dict(value.const_value)]


@contextmanager
def _replaced(chosen: Mapping[ir.Value, ir.TensorProtocol]) -> Iterator[None]:
    """Replaces initializers of subgraphs temporarily; only models of other exporters have some."""
    before = [(value, value.const_value) for value in chosen]
    try:
        for value, tensor in chosen.items():
            value.const_value = tensor
        yield
    finally:
        for value, original in before:
            value.const_value = original


def drop_initializer_infos(graph: onnx.GraphProto) -> None:
    """Removes the initializers from ``value_info``; a tensor has its dtype and its shape itself.

    Tools that replace an initializer by another one, such as a quantizer, leave its old shape in ``value_info``. The
    metadata of an entry moves to the tensor.
    """
    for part in graphs_in(graph):
        tensors = {tensor.name: tensor for tensor in part.initializer}
        infos = part.value_info
        infos.sort(key=lambda info, tensors=tensors: info.name in tensors)  # stable, so the others keep their order
        while infos and infos[-1].name in tensors:
            info = infos.pop()
            tensors[info.name].metadata_props.extend(info.metadata_props)


# Reading

_NESTED = {
    message.DESCRIPTOR.name: {
        field.number: field.message_type.name
        for field in message.DESCRIPTOR.fields
        if field.message_type is not None and field.name != "metadata_props"
    }
    for message in (
        onnx.ModelProto,
        onnx.TrainingInfoProto,
        onnx.FunctionProto,
        onnx.GraphProto,
        onnx.NodeProto,
        onnx.AttributeProto,
        onnx.SparseTensorProto,
        onnx.TensorProto,
    )
}
"""For each message that can contain tensors: the field number and the message of each nested field."""
_READ_AT_ONCE_BYTES = 64 * 1024
"""A shorter message is searched for the word "location" before its fields are visited."""


def referenced_files(path: Path) -> set[str]:
    """Returns the names of the external data files that the saved model at ``path`` reads, relative to its folder.

    It visits the fields of the file and skips the weights, because onnx.load would read a whole model of 2 GB. A file
    that is not a model, or is damaged, refers to the files that are named before the damage.

    Raises:
        OSError: the file cannot be read.
    """
    locations: set[str] = set()
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        with suppress(ValueError, RecursionError, DecodeError):
            _find_locations(file, "ModelProto", size, locations)
    return locations


def _find_locations(file: BinaryIO, message: str, end: int, locations: set[str]) -> None:
    """Adds the locations of the external tensors in a message, which begins at the file's position."""
    while file.tell() < end:
        key = _read_varint(file)
        if key & 7 == 0:  # an integer
            _read_varint(file)
            continue
        if key & 7 in (1, 5):  # 8 or 4 bytes
            file.seek(8 if key & 7 == 1 else 4, 1)
            continue
        size, start = _read_varint(file), file.tell()
        if key & 7 != 2 or key < 8 or start + size > end:
            raise ValueError("this is not a protobuf message")
        nested = _NESTED[message].get(key >> 3, "")
        if nested == "StringStringEntryProto":
            entry = onnx.StringStringEntryProto.FromString(file.read(size))
            if entry.key == "location" and isinstance(entry.value, str):  # bytes that are not UTF-8 stay bytes
                locations.add(posixpath.normpath(entry.value))
        elif nested in _NESTED and (size > _READ_AT_ONCE_BYTES or b"location" in file.read(size)):
            file.seek(start)
            _find_locations(file, nested, start + size, locations)
        file.seek(start + size)


def _read_varint(file: BinaryIO) -> int:
    """Returns the integer at the file's position in the base-128 encoding of protobuf.

    Raises:
        ValueError: the file ends, or the integer is longer than 10 bytes.
    """
    number = 0
    for shift in range(0, 70, 7):
        (byte,) = file.read(1)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
    raise ValueError("this is not a protobuf message")


# ---------------------------------------------------------------- text for people


def graph_text(model: ir.Model) -> str:
    """Returns the model in ONNX's textual syntax (Source: ONNX's Syntax document), without the values of weights."""
    proto = serialized(model, placeholders(model), Contents())
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value="not shown")
    text: str = onnx.printer.to_text(proto)
    return text


def add_doc_strings(model: ir.Model) -> None:
    """Gives each node the source lines that it comes from as doc_string, the innermost first: ``file(line): name``.

    TorchScript's exporter wrote them in this form.
    """
    for node in chain.from_iterable(map(all_nodes, graphs_of(model))):
        lines = traced_lines(node.metadata_props.get(metadata.STACK_TRACE, ""))
        if lines:
            node.doc_string = "\n".join(f"{line.path}({line.line}): {line.function}" for line in reversed(lines))


# ---------------------------------------------------------------- views of a model


def twin_of(value: ir.Value) -> ir.Value:
    """Returns a value with the same name, type, tensor and metadata, which belongs to no graph."""
    twin = ir.Value(name=value.name, shape=value.shape, type=value.type, const_value=value.const_value)
    twin.doc_string = value.doc_string
    twin.metadata_props.update(value.metadata_props)
    twin.meta.update(value.meta)
    return twin


def view_of(
    model: ir.Model,
    initializers: Sequence[ir.Value],
    nodes: Sequence[ir.Node],
    inputs: Sequence[ir.Value] | None = None,
) -> ir.Model:
    """Returns a model with other initializers and nodes, and maybe inputs; all else is that of ``model``."""
    graph = ir.GraphView(
        model.graph.inputs if inputs is None else inputs,
        model.graph.outputs,
        nodes=nodes,
        initializers=initializers,
        doc_string=model.graph.doc_string,
        opset_imports=model.graph.opset_imports,
        name=model.graph.name,
        metadata_props=model.graph.metadata_props,
    )
    view = ir.Model(
        graph,  # type: ignore[arg-type]  # onnx_ir documents that it may be a view
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        functions=list(model.functions.values()),
        metadata_props=model.metadata_props,
        device_configurations=model.device_configurations,
    )
    view.meta.update(model.meta)
    return view


def describe(value: ir.Value) -> str:
    """Returns the type of a value as text, for example ``float[batch, 8]``."""
    dims = "?" if value.shape is None else ", ".join(str(dim) for dim in value.shape)
    return f"{value.dtype.name.lower() if value.dtype else '?'}[{dims}]"
