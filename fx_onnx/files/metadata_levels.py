"""How much a saved model tells about the code that it comes from: all, only names, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from fx_onnx.messages.arguments import did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.onnx_model import metadata

__all__ = ["LEVELS", "check_level", "graphs_in", "remove_metadata", "remove_metadata_of_declarations"]

LEVELS = ("full", "names", "none")

_NAMES = frozenset(
    {
        metadata.NAMESPACE,
        metadata.CLASS_HIERARCHY,
        metadata.NAME_SCOPES,
        metadata.INPUT_KIND,
        metadata.INPUT_PERSISTENT,
        metadata.OUTPUT_KIND,
        metadata.OUTPUT_TARGET,
        metadata.ORIGINAL_NODE_NAME,
    }
)
"""What the level ``names`` keeps: no source text, no path, and no dump of torch.export."""


def check_level(level: Any) -> None:
    """Checks a level.

    Raises:
        ArgumentError: it is not one of ``LEVELS``.
    """
    if not isinstance(level, str) or level not in LEVELS:
        hint = did_you_mean(level, LEVELS) or "."
        raise ArgumentError(f"metadata must be 'full', 'names' or 'none', not {shown(level)}{hint}")


def remove_metadata(model: onnx.ModelProto, level: str) -> None:
    """Removes from a message the metadata that a level leaves out. What other programs added to the model stays.

    ``doc_string`` of a node, which holds its source lines, goes with them.

    Args:
        model: the message; it is changed in place.
        level: one of ``LEVELS``.
    """
    if level == "full":
        return
    kept = _NAMES if level == "names" else frozenset()
    graphs = [graph for owner in (model.graph, *model.functions) for graph in graphs_in(owner)]
    _clean([model], kept)
    for graph in graphs:
        is_function = isinstance(graph, onnx.FunctionProto)
        values = () if is_function else (*graph.input, *graph.output, *graph.initializer)
        _clean([graph, *graph.value_info, *graph.node, *values], kept)
        for node in graph.node:
            node.ClearField("doc_string")


def graphs_in(graph: Any) -> Iterator[Any]:
    """Yields the message of a graph or a function, and those of all graphs inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for nested in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from graphs_in(nested)


def remove_metadata_of_declarations(graph: onnx.GraphProto) -> None:
    """Removes the exporter's metadata from the declarations of the user's inputs and outputs.

    The signature in the metadata of the graph has the same facts. State, which a program reads and writes beside the
    user's values, keeps its metadata, because the declaration tells which state it is.
    """
    kinds = {(metadata.INPUT_KIND, "USER_INPUT"), (metadata.OUTPUT_KIND, "USER_OUTPUT")}
    for value in (*graph.input, *graph.output):
        if any((entry.key, entry.value) in kinds for entry in value.metadata_props):
            _clean([value], frozenset())


def _clean(messages: Iterable[Any], kept: frozenset[str]) -> None:
    for message in messages:
        entries = [(entry.key, entry.value) for entry in message.metadata_props]
        left = [(key, value) for key, value in entries if key in kept or not _is_ours(key)]
        if len(left) < len(entries):
            message.ClearField("metadata_props")
            for key, value in left:
                message.metadata_props.add(key=key, value=value)


def _is_ours(key: str) -> bool:
    return key == metadata.NAMESPACE or key.startswith(("pkg.torch.", "fx_onnx."))
