"""Names of inputs, outputs and dims of outputs: the user's names, or names from the structure of the arguments."""

from collections.abc import Collection, Iterator
from typing import Any

import onnx_ir as ir
import sympy
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from fx_onnx.messages.arguments import counted, is_dim_word
from fx_onnx.messages.errors import ArgumentError, no_effect
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.names import Names
from fx_onnx.requests import pytrees
from fx_onnx.requests.dim_expressions import dim_expression
from fx_onnx.requests.request import Request, WeightNames
from fx_onnx.requests.user_outputs import graph_leaves


def name_inputs_and_outputs(model: ir.Model, request: Request) -> None:
    """Gives the inputs and outputs the requested names; an inner value that has such a name gets a new one.

    Raises:
        ArgumentError: there are more names than inputs or outputs, a name belongs to an input without a new name, or an
            output does not have a named axis.
    """
    graph = model.graph
    inputs = [value for value in graph.inputs if not value.is_initializer()]
    names = list(zip(inputs, request.input_names, strict=False))
    names += list(zip(graph.outputs, request.output_names, strict=False))
    for kind, values, given in (
        ("input", inputs, request.input_names),
        ("output", graph.outputs, request.output_names),
    ):
        if len(given) > len(values):
            raise ArgumentError(
                f"{kind}_names has {counted(len(given), 'name')}, but the model has {counted(len(values), kind)}.",
                id=MessageId.NAMES,
            )
    named = dict(names)
    requested = set(named.values())
    for value in inputs:
        if value not in named and value.name in requested:
            raise ArgumentError(
                f"{value.name!r} in input_names or output_names is the name of an input that input_names does not "
                "rename; choose another one, or name that input too.",
                id=MessageId.NAMES,
            )
    _rename(named, graph)
    _name_weights(graph, request.weights)
    if request.output_axes:
        _name_output_axes(model, request)


def _name_weights(graph: ir.Graph, weights: WeightNames) -> None:
    """Gives weights the requested names, and initializers the order of the state_dict; constants follow."""
    names = {value: _state_name(str(value.name), weights.places) for value in graph.initializers.values()}
    places = {value: weights.places.get(name, len(weights.places)) for value, name in names.items()}
    ordered = sorted(places, key=lambda value: places[value])
    renamed = [value for value in ordered if places[value] < len(weights.new)]
    _rename({v: weights.new[places[v]] + str(v.name).removeprefix(names[v]) for v in renamed}, graph)
    for value in ordered:
        graph.initializers[str(value.name)] = graph.initializers.pop(str(value.name))
    for index in sorted(set(range(len(weights.new))) - set(places.values())):
        no_effect(f"{weights.new[index]!r} in input_names", "the model does not use this weight")


def _state_name(name: str, state: Collection[str]) -> str:
    """Returns the name in the state_dict: that of the quantized weight for its part ``fc.weight.qdata``."""
    whole = name.rpartition(".")[0]
    return whole if name not in state and whole in state else name


def name_by_structure(model: ir.Model, program: ExportedProgram) -> None:
    """Gives dotted names to the tensors in caches and to named outputs: `past_key_values.0.key`, `logits`.

    All other inputs and outputs keep the names of FX. An output whose name belongs to an input or a weight gets the
    suffix `_out`, like the new value of a mutated input.
    """
    graph = model.graph
    wanted: dict[ir.Value, str] = {}
    names = Names(value.name for value in (*graph.inputs, *graph.initializers.values()))
    inputs = {str(value.name): value for value in graph.inputs}
    by_fx_name = names_in_caches(program)
    for fx_name, name in by_fx_name.items():
        if fx_name in inputs and name not in names:
            wanted[inputs[fx_name]] = names.unique(name)
    for value, output in zip(graph.outputs, _output_names(program), strict=False):  # new values of buffers follow
        if output is not None:
            wanted[value] = _free(output, names)
    kind = OutputKind.USER_INPUT_MUTATION.name
    for value in graph.outputs:
        fx_name = str(value.name).removesuffix("_out")
        if value.metadata_props.get(metadata.OUTPUT_KIND) == kind and fx_name in by_fx_name:
            wanted[value] = _free(by_fx_name[fx_name], names)
    _rename(wanted, graph)


def names_in_caches(program: ExportedProgram) -> dict[str, str]:
    """Returns FX name → dotted name of each input that is part of a cache."""
    names: dict[str, str] = {}
    parameters = getattr(program.module_call_graph[0].signature, "forward_arg_names", None) or ()
    for argument, leaf in _user_inputs(program):
        if leaf.in_cache:
            _, first, *rest = leaf.path
            known = isinstance(first, int) and first < len(parameters)
            names[argument] = _dotted([parameters[first] if known else first, *rest])
    return names


def inputs_in_caches(program: ExportedProgram) -> set[str]:
    """Returns the FX names of the inputs that are parts of caches, also where another library registered the class."""
    return {name for name, leaf in _user_inputs(program) if leaf.in_any_cache}


def _user_inputs(program: ExportedProgram) -> Iterator[tuple[str, pytrees.Leaf]]:
    """Yields the FX name of each input of the user that is no constant, and where it is among the arguments."""
    spec = program.call_spec.in_spec
    user = [item.arg for item in program.graph_signature.input_specs if item.kind == InputKind.USER_INPUT]
    for argument, leaf in () if spec is None else zip(user, pytrees.leaves(spec), strict=True):
        if not isinstance(argument, ConstantArgument):
            yield argument.name, leaf


def _output_names(program: ExportedProgram) -> list[str | None]:
    """Returns the dotted name of each result that is a graph output; None for one that keeps the name of FX.

    A tensor in the new cache has the name of the one in the cache that the program takes. The field of the results may
    have another name than the parameter, as ``cache`` and ``past_key_values`` in transformers 5.24.
    """
    spec = program.call_spec.out_spec
    if spec is None:
        return []
    keyed = pytrees.has_named_children(spec)
    inputs = set(names_in_caches(program).values())
    parameters = {name.partition(".")[0] for name in inputs}
    names = []
    for leaf in pytrees.leaves(spec):
        name = _dotted(leaf.path if keyed else ("output", *leaf.path)) if keyed or leaf.in_cache else None
        if keyed and leaf.in_cache and len(parameters) == 1:
            of_input = _dotted((*parameters, *leaf.path[1:]))
            name = of_input if of_input in inputs else name
        names.append(name)
    return graph_leaves(program, names)


def _dotted(path: Any) -> str:
    return ".".join(str(part) for part in path)


def _free(name: str, names: Names) -> str:
    """Returns the name, with the suffix `_out` if it is taken, and a number if that is taken too."""
    return names.unique(f"{name}_out" if name in names else name)


def _rename(names: dict[ir.Value, str], graph: ir.Graph) -> None:
    """Gives values new names; another value that has such a name gets a new one."""
    if names:
        _make_room(set(names.values()), set(names), graph)
    for value, name in names.items():
        if value.name != name:
            value.metadata_props.setdefault(metadata.ORIGINAL_NODE_NAME, str(value.name))
            value.name = name


def _make_room(wanted: set[str], renamed: set[ir.Value], graph: ir.Graph) -> None:
    """Renames every other value that has a wanted name."""
    values = [*graph.inputs, *graph.initializers.values()]
    values += [output for node in ir.traversal.RecursiveGraphIterator(graph) for output in node.outputs]
    names = Names([*(value.name for value in values), *wanted])
    for value in values:
        if value.name in wanted and value not in renamed:
            value.metadata_props.setdefault(metadata.ORIGINAL_NODE_NAME, str(value.name))
            value.name = names.unique(str(value.name))
    for value in renamed:  # a temporary name, because two values may swap names
        value.metadata_props.setdefault(metadata.ORIGINAL_NODE_NAME, str(value.name))
        value.name = f"{value.name}.renamed"


def _name_output_axes(model: ir.Model, request: Request) -> None:
    """Gives the requested names to dims of outputs, except where the dim is known to be another one.

    It is another one if the name belongs to another dim of an input, or is an expression over such names that differs.
    """
    data_dependent: frozenset[str] = model.meta.get(metadata.DATA_DEPENDENT_DIMS, frozenset())
    of_inputs = {
        str(dim.value) for value in model.graph.inputs for dim in value.shape or () if not isinstance(dim, int)
    }
    for output in model.graph.outputs:
        for axis, name in request.output_axes.get(str(output.name), {}).items():
            if output.shape is None or not -len(output.shape) <= axis < len(output.shape):
                raise ArgumentError(
                    f"dynamic_axes names axis {axis} of the output {output.name!r}, which has no such axis.",
                    id=MessageId.DYNAMIC_SHAPES,
                )
            dim = output.shape[axis]
            if not isinstance(dim, ir.SymbolicDim):
                no_effect(f"dynamic_axes for axis {axis} of the output {output.name!r}", f"its size is always {dim}")
                continue
            if name == dim.value:
                continue
            if (reason := _contradiction(name, str(dim.value), of_inputs)) is not None:
                warn(
                    f"{output.name}.shape[{axis}] is {dim.value!r}, not {name!r} as dynamic_axes calls it, because "
                    f"{reason}; it keeps its own name.",
                    MessageId.DIM_NAME,
                )
                continue
            if dim.value in data_dependent:
                data_dependent |= {name}
            output.shape[axis] = str(name)
    model.meta[metadata.DATA_DEPENDENT_DIMS] = data_dependent


def _contradiction(name: str, dim: str, of_inputs: Collection[str]) -> str | None:
    """Returns why a dim cannot have a name; None if it can."""
    sizes = {text: sympy.Symbol(text, integer=True) for text in of_inputs if is_dim_word(text)}
    stated, own = dim_expression(name, sizes), sizes.get(dim, dim_expression(dim, sizes))
    if stated is not None and stated == own:
        return None
    if name in of_inputs:
        return f"an input has another dim {name!r}"
    return "the model computes another size" if stated is not None and own is not None else None
