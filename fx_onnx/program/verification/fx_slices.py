"""Runs FX graphs node by node, and cuts the nodes between given values and one result out of a graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.autocast import lower_autocast
from fx_onnx.aten.functionalize import functionalize
from fx_onnx.aten.vmap_regions import lower_vmap
from fx_onnx.core.autocast_off import autocast_disabled
from fx_onnx.core.threads import CAPTURE_LOCK
from fx_onnx.core.torch_private import unset_fake_temporarily

__all__ = ["attributes_of", "executed", "functional_program", "graph_module", "slice_to"]

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
    found: dict[str, Any] = {}
    for node in graph.find_nodes(op="get_attr"):
        name = str(node.target)
        body = program.bodies.get(name)
        if body is None:
            found[name] = program.constants[name]
            continue
        module = GraphModule(attributes_of(program, body), body)
        is_condition = any(user.target in _LOOPS and user.args[0] is node for user in node.users)
        found[name] = _Condition(module) if is_condition else module
    return found


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
