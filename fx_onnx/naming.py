"""The user's names for inputs, outputs and the dims of outputs."""

import onnx_ir as ir

from fx_onnx import metadata
from fx_onnx.arguments import Request
from fx_onnx.errors import ArgumentError


def name_inputs_and_outputs(model: ir.Model, request: Request) -> None:
    """Gives the graph's inputs and outputs the names that were asked for; what bore such a name takes another.

    Raises:
        ArgumentError: there are more names than inputs or outputs, or an axis of an output that it does not have.
    """
    graph = model.graph
    names = list(zip(graph.inputs, request.input_names, strict=False))
    names += list(zip(graph.outputs, request.output_names, strict=False))
    for kind, values, given in (
        ("input", graph.inputs, request.input_names),
        ("output", graph.outputs, request.output_names),
    ):
        if len(given) > len(values):
            raise ArgumentError(f"{len(given)} {kind}_names were given, but the model has {len(values)} {kind}s.")
    if names:
        _make_room({name for _, name in names}, {value for value, _ in names}, graph)
        for value, name in names:
            if value.name != name:
                value.metadata_props.setdefault(metadata.ORIGINAL_NODE_NAME, str(value.name))
                value.name = name
    if request.output_axes:
        _name_output_axes(graph, request)


def _make_room(wanted: set[str], renamed: set[ir.Value], graph: ir.Graph) -> None:
    """Renames every other value that bears a wanted name."""
    values = [*graph.inputs, *graph.initializers.values()]
    values += [output for node in ir.traversal.RecursiveGraphIterator(graph) for output in node.outputs]
    taken = {value.name for value in values} | wanted
    for value in values:
        if value.name in wanted and value not in renamed:
            value.metadata_props.setdefault(metadata.ORIGINAL_NODE_NAME, str(value.name))
            count = 1
            while f"{value.name}_{count}" in taken:
                count += 1
            taken.add(new := f"{value.name}_{count}")
            value.name = new
    for value in renamed:  # first a name that nothing has: two of them may swap names
        value.metadata_props.setdefault(metadata.ORIGINAL_NODE_NAME, str(value.name))
        value.name = f"{value.name}.renamed"


def _name_output_axes(graph: ir.Graph, request: Request) -> None:
    for output in graph.outputs:
        for axis, name in request.output_axes.get(str(output.name), {}).items():
            if output.shape is None or not -len(output.shape) <= axis < len(output.shape):
                raise ArgumentError(
                    f"dynamic_axes names axis {axis} of the output {output.name!r}, which has no such axis."
                )
            if not isinstance(output.shape[axis], int):
                output.shape[axis] = name
