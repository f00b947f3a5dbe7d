"""Cuts an ONNX model at the values that FX nodes have too, and runs the parts between them on PyTorch's values.

A part computes one such value from others. It runs on the values that PyTorch computed, so an error of one part does
not reach another part, and rounding differences do not add up. The captured graph is run node by node and cut here too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from fx_onnx.aten.aten_program import AtenProgram, lower_vmap
from fx_onnx.aten.autocast import lower_autocast
from fx_onnx.aten.functionalize import functionalize
from fx_onnx.capture.callers_precision import autocast_disabled
from fx_onnx.onnx_model.dtypes import onnx_dtype, torch_dtype
from fx_onnx.onnx_model.metadata import ORIGINAL_NODE_NAME
from fx_onnx.passes.traversal import all_nodes
from fx_onnx.program.session import LoadedModel
from fx_onnx.torch_internals.threads import CAPTURE_LOCK
from fx_onnx.torch_internals.torch_private import unset_fake_temporarily

__all__ = [
    "GIVEN",
    "ModelParts",
    "Part",
    "attributes_of",
    "executed",
    "functional_program",
    "graph_module",
    "slice_to",
    "value_bytes",
]

GIVEN = ".given"
"""The end of the name of an input that replaces a value."""


@dataclass
class Part:
    """The ONNX nodes that compute one value from others.

    Attributes:
        name: the name of the ONNX value.
        node: the FX node that computes the value.
        value: the ONNX value.
        given: the graph input that the other parts read instead of the value; None if no other part can read it.
        reads: the parts whose values the nodes read.
        inputs: the inputs of the whole graph that the nodes read.
        nodes: the ONNX nodes, from the last to the first.
        weight_bytes: the size of the weights that the nodes read.
    """

    name: str
    node: Node
    value: ir.Value
    given: ir.Value | None
    reads: list[Part] = field(default_factory=list)
    inputs: list[ir.Value] = field(default_factory=list)
    nodes: list[ir.Node] = field(default_factory=list)
    weight_bytes: int = 0


class ModelParts:
    """The parts of a model, in the order of the graph.

    Attributes:
        parts: the parts.
        output_names: the names of the outputs of the model.
    """

    def __init__(self, model: ir.Model, program: AtenProgram, provider: str | None = None) -> None:
        self._model, self._provider = model.clone(), provider  # the weights are shared
        graph = self._model.graph
        nodes = {node.name: node for node in program.graph.nodes if node.op == "call_function"}
        computed: dict[ir.Value, Node] = {}
        taken: set[Node] = set()
        for value in (value for node in graph for value in node.outputs if value.name):
            node = nodes.get(value.metadata_props.get(ORIGINAL_NODE_NAME, str(value.name)))
            if node is not None and node not in taken and _is_same_type(value, node.meta.get("val")):
                taken.add(node)
                computed[value] = node
        self.output_names = [str(value.name) for value in graph.outputs]
        results = _results_of_outputs(program.graph)
        if len(results) == len(graph.outputs):
            pairs = zip(graph.outputs, results, strict=True)
            computed |= {
                v: node for v, node in pairs if node is not None and v not in computed and v.producer() is not None
            }
        graph.outputs.clear()  # onnx_ir does not replace the uses of an output
        self.parts = [self._cut(value, node) for value, node in computed.items()]
        self._by_input = {part.given: part for part in self.parts if part.given is not None}
        for part in self.parts:
            self._trace(part)

    def _cut(self, value: ir.Value, node: Node) -> Part:
        """Makes the users of a value read a new graph input instead."""
        given = None
        if any(use.node is not None for use in value.uses()):
            given = ir.Value(
                name=f"{value.name}{GIVEN}", type=value.type or _type(node.meta.get("val")), shape=value.shape
            )
            ir.convenience.replace_all_uses_with(value, given)
            self._model.graph.inputs.append(given)
        return Part(str(value.name), node, value, given)

    def _trace(self, part: Part) -> None:
        """Finds the nodes of a part and what they read."""
        pending, seen = [part.value], {part.value}
        visited: set[ir.Node] = set()
        while pending:
            value = pending.pop()
            node = value.producer()
            if value in self._by_input:
                part.reads.append(self._by_input[value])
            elif value.const_value is not None and node is None:
                part.weight_bytes += value.const_value.nbytes
            elif node is None:
                part.inputs.append(value)
            elif node not in visited:
                visited.add(node)
                part.nodes.append(node)
                new = [read for read in _read_values(node) if read not in seen]
                seen.update(new)
                pending.extend(new)

    def run(self, parts: Sequence[Part], values: Mapping[str, Any]) -> list[torch.Tensor]:
        """Runs parts on given values.

        Args:
            parts: what to compute.
            values: the values of the parts that these parts read, and the inputs of the whole graph, by name.
        """
        model = self.extract(parts)
        inputs = {str(value.name): _as_input(value, values) for value in model.graph.inputs}
        with LoadedModel(model, provider=self._provider) as loaded:
            return list(loaded.run(inputs))

    def extract(self, parts: Sequence[Part]) -> ir.Model:
        """Returns the parts as a model, whose inputs are named ``<value>.given`` or as in the whole graph."""
        read = [source.given for part in parts for source in part.reads if source.given is not None]
        read += [value for part in parts for value in part.inputs]
        graph = ir.convenience.extract(self._model.graph, list(dict.fromkeys(read)), [part.value for part in parts])
        for value in graph.inputs:  # the sizes are those of the values that are given
            if value.shape is not None:
                value.shape = ir.Shape(value.shape)
        return ir.Model(graph, ir_version=self._model.ir_version, functions=list(self._model.functions.values()))


def _read_values(node: ir.Node) -> Iterable[ir.Value]:
    """Returns the values that a node and its subgraphs read from outside."""
    inner = [nested for attr in node.attributes.values() for graph in _graphs(attr) for nested in all_nodes(graph)]
    bodies = [graph for reader in (node, *inner) for attr in reader.attributes.values() for graph in _graphs(attr)]
    own = {value for nested in inner for value in nested.outputs} | {value for body in bodies for value in body.inputs}
    own |= {value for body in bodies for value in body.initializers.values()}
    read = [value for reader in (node, *inner) for value in reader.inputs]
    read += [value for body in bodies for value in body.outputs]
    return [value for value in read if value is not None and value not in own]


def _graphs(attr: ir.Attr) -> Sequence[ir.Graph]:
    if attr.is_ref():
        return ()
    if attr.type == ir.AttributeType.GRAPH:
        return (attr.as_graph(),)
    return attr.as_graphs() if attr.type == ir.AttributeType.GRAPHS else ()


def _is_same_type(value: ir.Value, fake: Any) -> bool:
    """Returns whether an ONNX value can be the value of an FX node: of the same dtype and rank."""
    if isinstance(fake, torch.Tensor):
        if fake.is_complex() or (value.dtype is not None and value.dtype != onnx_dtype(fake.dtype)):
            return False
        return value.shape is None or len(value.shape) == fake.dim()
    return isinstance(fake, (torch.SymInt, int)) and value.shape is not None and len(value.shape) == 0


def _type(fake: Any) -> ir.TensorType:
    """Returns the ONNX type of the value of an FX node."""
    return ir.TensorType(onnx_dtype(fake.dtype) if isinstance(fake, torch.Tensor) else ir.DataType.INT64)


def _results_of_outputs(graph: Graph) -> list[Node | None]:
    """Returns the FX nodes of the graph outputs, in order (see translate.py); None for an output that is a number."""
    (output,) = graph.find_nodes(op="output")
    return [result if isinstance(result, Node) else None for result in output.args[0] if result is not None]


def _as_input(value: ir.Value, values: Mapping[str, Any]) -> torch.Tensor:
    given = values[str(value.name).removesuffix(GIVEN)]
    if isinstance(given, torch.Tensor):
        return given.detach()
    dtype = torch_dtype(value.dtype) if value.dtype is not None else None
    return torch.as_tensor(given, dtype=dtype)


def value_bytes(value: Any) -> int:
    """Returns the size of a value of an FX node in memory."""
    if isinstance(value, torch.Tensor):
        return value.element_size() * math.prod(value.shape)
    return 8


# ---------------------------------------------------------------- FX graphs

_LOOPS = (torch.ops.higher_order.while_loop, torch.ops.higher_order.while_loop_stack_output)


def functional_program(exported: torch.export.ExportedProgram) -> AtenProgram:
    """Returns the captured program without writes in place, as the stage ``functionalize`` returns it.

    Its nodes have the names of the captured ones.

    Raises:
        MutationError: the program writes in a way that has no functional form.
    """
    with CAPTURE_LOCK, unset_fake_temporarily(), autocast_disabled():
        return functionalize(lower_autocast(lower_vmap(AtenProgram.captured(exported))))


def graph_module(program: AtenProgram) -> GraphModule:
    """Returns the main graph of a program as a module."""
    return GraphModule(attributes_of(program, program.graph), program.graph)


def attributes_of(program: AtenProgram, graph: Graph) -> dict[str, Any]:
    """Returns what the ``get_attr`` nodes of a graph name: constants, and bodies of control flow as modules."""
    attributes: dict[str, Any] = {}
    for node in graph.find_nodes(op="get_attr"):
        name = str(node.target)
        body = program.bodies.get(name)
        if body is None:
            attributes[name] = program.constants[name]
            continue
        module = GraphModule(attributes_of(program, body), body)
        is_condition = any(user.target in _LOOPS and user.args[0] is node for user in node.users)
        attributes[name] = _Condition(module) if is_condition else module
    return attributes


class _Condition(torch.nn.Module):
    """The condition of a loop. It returns a tensor, as torch requires, where the body has a tuple of results."""

    def __init__(self, body: GraphModule) -> None:
        super().__init__()
        self.body = body

    def forward(self, *args: Any) -> Any:
        """Returns the only result of the body."""
        (result,) = self.body(*args)
        return result


def executed(module: GraphModule, arguments: Sequence[Any]) -> Iterator[tuple[Node, Any]]:
    """Yields each node of a graph with its value. A value is freed after its last use.

    Args:
        module: the graph.
        arguments: the values of the placeholders.
    """
    interpreter = Interpreter(module)
    interpreter.args_iter = iter(arguments)
    for node in module.graph.nodes:
        with CAPTURE_LOCK, torch.no_grad():  # torch.cond compiles while it runs eagerly
            value = interpreter.env[node] = interpreter.run_node(node)
        yield node, value
        for used in interpreter.user_to_last_uses.get(node, ()):
            del interpreter.env[used]


def slice_to(
    program: AtenProgram, target: Node, boundary: Collection[Node]
) -> tuple[GraphModule, list[Node], list[Node]]:
    """Returns the nodes that compute ``target`` from the boundary and the placeholders.

    Args:
        program: the program without writes in place.
        target: a node of its graph.
        boundary: the nodes whose values are given.

    Returns:
        The nodes as a module that returns the value of ``target``; the nodes whose values are its arguments, in order;
        the nodes themselves, in order.
    """
    needed: set[Node] = set()
    pending = [target]
    while pending:
        node = pending.pop()
        if node in needed:
            continue
        needed.add(node)
        if node is target or (node not in boundary and node.op != "placeholder"):
            pending.extend(node.all_input_nodes)
    graph, env, arguments, inside = Graph(), dict[Node, Node](), list[Node](), list[Node]()
    for node in program.graph.nodes:
        if node not in needed:
            continue
        if node is not target and (node in boundary or node.op == "placeholder"):
            env[node] = graph.placeholder(node.name)
            arguments.append(node)
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
            inside.append(node)
    graph.output(env[target])
    return GraphModule(attributes_of(program, graph), graph), arguments, inside
