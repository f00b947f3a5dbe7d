"""The model as text for people: the graph in ONNX's textual syntax, and the source line of each node."""

from __future__ import annotations

import re
from itertools import chain

import onnx
import onnx_ir as ir

from fx_onnx.core import metadata
from fx_onnx.passes.traversal import all_nodes, graphs_of
from fx_onnx.program.serialization import Contents, placeholders, serialized

__all__ = ["add_doc_strings", "graph_text"]

_FRAME = re.compile(r'^ *File "([^"]*)", line (\d+), in (.*)$', re.MULTILINE)


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
        frames = _FRAME.findall(node.metadata_props.get(metadata.STACK_TRACE, ""))
        if frames:
            node.doc_string = "\n".join(f"{path}({line}): {name}" for path, line, name in reversed(frames))
