"""Branches for sizes that depend on data: a graph that is right for more than one row → one that is right for one, too.

torch captures ``nonzero(mask).squeeze()`` for a size that is not 1. For 1, the same calls compute tensors of other
shapes. The calls that compute or read such a tensor become the branches of an ``If``: the captured calls, and the same
calls on a size that is 1. In each branch all shapes are known, so each stage after this one treats it as any graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.fx_nodes import fake_mode, fake_results, is_effect, is_symbolic, makes_symbols, meta_value, origin
from fx_onnx.aten.tracing.guard_check import undone_guards
from fx_onnx.core import metadata
from fx_onnx.core.errors import CaptureError
from fx_onnx.core.guard_private import as_made
from fx_onnx.core.messages import MessageId
from fx_onnx.core.metadata import call_line
from fx_onnx.core.operators import aten
from fx_onnx.core.symbolic_sizes import expression, is_data_dependent
from fx_onnx.core.torch_private import pytree

__all__ = ["branch_on_data_sizes"]

_CAPTURED = "fx_onnx.captured"
"""In the ``meta`` of a node: the value with which torch captured the calls that read it."""
_MANY = 4
"""The number of sizes that one result may depend on; each doubles the number of branches."""


@dataclass(frozen=True)
class _Case:
    """A size that depends on data and has another value than the captured graph is for."""

    symbol: sympy.Symbol
    size: int

    def value(self, value: Any, mode: Any) -> Any:
        """Returns captured tensors and numbers where the size has its value."""
        return _mapped(value, lambda size: expression(size).xreplace({self.symbol: sympy.Integer(self.size)}), mode)


def _mapped(value: Any, changed: Callable[[Any], Any], mode: Any) -> Any:
    """Returns tensors and numbers with other sizes; a value whose expressions stay as it is.

    Args:
        value: the tensors and numbers.
        changed: returns the new expression of a symbolic size.
        mode: makes the new ones.
    """
    if isinstance(value, (list, tuple)):
        found = [_mapped(each, changed, mode) for each in value]
        return value if all(map(operator.is_, found, value)) else type(value)(found)
    if isinstance(value, torch.Tensor):
        shape = _mapped(tuple(sizes := value.shape), changed, mode)
        return value if all(map(operator.is_, shape, sizes)) else value.new_empty(shape)
    if not isinstance(value, torch.SymInt) or (new := changed(value)) == expression(value):
        return value
    return int(new) if new.is_Integer else mode.shape_env.create_symintnode(new, hint=None)


def branch_on_data_sizes(program: AtenProgram, sizes: Sequence[int]) -> AtenProgram:
    """Puts calls whose shapes are others for a size into branches; rewrites the graph in place.

    Args:
        program: the functionalized program.
        sizes: the sizes for which the captured graph may be another one.

    Raises:
        CaptureError: a result depends on too many sizes.
    """
    graph = program.graph
    if sizes:
        mode = fake_mode(graph)
        symbols = {**_symbols(graph), **_separated(graph, mode)}
        cases = [_Case(symbol, size) for symbol, size in product(symbols, sizes)]
        _Brancher(program, mode).branch(graph, cases)
    return program


def _sizes(node: Node) -> Iterator[torch.SymInt]:
    """Yields the symbolic sizes of the tensors that a node computes, and its symbolic number."""
    for value in fake_results(node) if node.meta.get("val") is not None else ():
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                yield size


def _symbols(graph: Graph) -> dict[sympy.Symbol, None]:
    """Returns the symbols that depend on data, in the order of the graph."""
    found = (each for node in graph.nodes for size in _sizes(node) for each in sorted(expression(size).free_symbols, key=str))
    return {each: None for each in found if is_data_dependent(each)}


def _separated(graph: Graph, mode: Any) -> dict[sympy.Symbol, None]:
    """Gives each size that torch made equal to another one a symbol of its own again, and returns these symbols.

    ``x[mask] + y`` with 3 rows of y makes the selected rows 3, but one row broadcasts. The calls that read such a value
    take the captured one.
    """
    found: dict[Any, Any] = {}
    for node in graph.nodes:
        lost = {s for size in _sizes(node) for s in as_made(size).free_symbols - expression(size).free_symbols}
        lost = {each for each in lost if is_data_dependent(each)}
        if lost and (is_symbolic(node) or found.keys().isdisjoint(lost)):
            for symbol in lost - found.keys():
                found[symbol] = expression(mode.shape_env.create_unbacked_symint())
            node.meta[_CAPTURED] = captured = node.meta["val"]
            with mode:
                node.meta["val"] = _mapped(captured, lambda size: as_made(size).xreplace(found), mode)
    return dict.fromkeys(found.values())


@dataclass
class _Brancher:
    """Rewrites a graph and the branches that it makes."""

    program: AtenProgram
    mode: Any
    names: Iterator[int] = field(default_factory=count)

    def branch(self, graph: Graph, cases: Sequence[_Case]) -> None:
        """Puts the calls of a graph that depend on cases into branches, and the cases that they share in these."""
        regions: list[tuple[set[Node], list[_Case]]] = []
        for case in cases:
            region, shared = self._region(graph, case), [case]
            while overlapping := next((each for each in regions if not region.isdisjoint(each[0])), None):
                regions.remove(overlapping)
                region, shared = _closed(graph, region | overlapping[0]), [*overlapping[1], *shared]
            if region:
                regions.append((region, shared))
        for region, shared in regions:
            if len(shared) > _MANY:
                place = call_line(next(node for node in graph.nodes if node in region))
                raise CaptureError(
                    f"The shapes of a result depend on {len(shared)} sizes that depend on data and may be 1{place}; "
                    "state with torch._check that they are not 1.",
                    id=MessageId.BRANCH_ON_DATA,
                )
            self._replace(graph, [node for node in graph.nodes if node in region], shared)

    def _values(self, graph: Graph, case: _Case) -> Iterator[tuple[Node, Any, bool]]:
        """Yields the value of each call that depends on a case, and whether it has the captured shape."""
        values: dict[Node, Any] = {}
        with self.mode, torch.no_grad(), undone_guards(self.mode):
            for node in graph.nodes:
                if "val" not in node.meta:
                    continue
                captured, value = node.meta["val"], case.value(node.meta["val"], self.mode)
                fits = value is captured or _CAPTURED not in node.meta
                reads = not values.keys().isdisjoint(node.all_input_nodes)
                if reads and node.op == "call_function" and node.users and not makes_symbols(node):
                    run = self._run(node, values)
                    same = _shapes(run) == _shapes(value)
                    value, fits = (value, fits) if same else (run, fits and is_symbolic(node))
                if value is not captured:
                    values[node] = value
                    yield node, value, fits

    def _run(self, node: Node, values: dict[Node, Any]) -> Any:
        def value(argument: Any) -> Any:
            return values.get(argument, meta_value(argument)) if isinstance(argument, Node) else argument

        args, kwargs = map_aggregate(node.args, value), map_aggregate(dict(node.kwargs), value)
        return node.target(*args, **kwargs)

    def _region(self, graph: Graph, case: _Case) -> set[Node]:
        """Returns the calls that compute another shape in a case, or read one, and all calls between them."""
        others = {node for node, _, fits in self._values(graph, case) if not fits}
        readers = {user for node in others for user in node.users if user.op == "call_function"}
        found = {node for node in others | readers if not is_symbolic(node) and not is_effect(node)}
        return _closed(graph, {node for node in found if _CAPTURED not in node.meta})

    def _replace(self, graph: Graph, region: Sequence[Node], cases: Sequence[_Case]) -> None:
        """Replaces calls by a branch for the first case; the branches have branches for the others."""
        case, *rest = cases
        inside = set(region)
        for node in [user for each in region for user in each.users if is_effect(user)]:
            graph.erase_node(node)
        results = [node for node in region if not inside.issuperset(node.users)]
        operands = list(dict.fromkeys(n for each in region for n in each.all_input_nodes if n not in inside))
        operands = [each for each in operands if each.op != "get_attr" or "val" in each.meta]
        rests = [each for each in rest if each.symbol != case.symbol], rest
        bodies = [
            self._body(graph, region, results, operands, case, rests[0]),
            self._body(graph, region, results, operands, None, rests[1]),
        ]
        others = {node for node, _, fits in self._values(graph, case) if not fits}
        with graph.inserting_before(region[-1].next):
            number = self.mode.shape_env.create_symintnode(case.symbol, hint=None)
            condition = graph.call_function(operator.eq, (_number(graph, number), case.size))
            condition.meta["val"] = number == case.size
            names = [graph.get_attr(each) for each in bodies]
            call = graph.call_function(torch.ops.higher_order.cond, (condition, *names, tuple(operands)))
            call.meta = {**origin(results[0]), "val": tuple(node.meta["val"] for node in results)}
            for place, node in enumerate(results):
                new = graph.call_function(operator.getitem, (call, place))
                new.meta = {**node.meta, metadata.OPEN_SHAPE: node in others}
                node.replace_all_uses_with(new, lambda user: user not in inside)
        for node in reversed(region):
            graph.erase_node(node)
        for each, left in zip(bodies, rests, strict=True):
            self.branch(self.program.bodies[each], left)

    def _body(
        self, graph: Graph, region: Sequence[Node], results: Sequence[Node], operands: Sequence[Node],
        case: _Case | None, rest: Sequence[_Case],
    ) -> str:  # fmt: skip
        """Adds the graph of a branch to the program and returns its name; without a case, it is the captured graph."""
        body, env, left = Graph(), dict[Node, Node](), {each.symbol for each in rest}
        values = {} if case is None else {node: value for node, value, _ in self._values(graph, case)}
        for node in operands:
            env[node] = body.placeholder(node.name)
            env[node].meta = dict(node.meta)
        for node in operands:
            value = values.get(node, node.meta["val"])
            if _CAPTURED in node.meta and node not in values and left.isdisjoint(_own_symbols(node)):
                value = node.meta[_CAPTURED]
            if value is not node.meta["val"]:
                env[node] = _stated(body, env[node], value)
        for node in region:
            env[node] = body.node_copy(node, lambda each: env[each])
            env[node].meta = {**node.meta, "val": values.get(node, node.meta.get("val"))}
        body.output(tuple(env[node] for node in results))
        name = f"data_size_{next(self.names)}"
        self.program.bodies[name] = body
        return name


def _own_symbols(node: Node) -> set[Any]:
    return {symbol for size in _sizes(node) for symbol in expression(size).free_symbols}


def _stated(body: Graph, node: Node, value: Any) -> Node:
    """Returns a call that states the value of an operand in a branch: the shape of a tensor, or a number."""
    if not isinstance(value, torch.Tensor):
        return _number(body, value)
    shape = [_number(body, size) if isinstance(size, torch.SymInt) else size for size in value.shape]
    new = body.call_function(aten.view.default, (node, shape))
    new.meta["val"] = value
    return new


def _number(graph: Graph, value: Any) -> Node:
    """Returns a node of a number, which its readers compute from its expression."""
    new = graph.call_function(operator.pos, (0,))
    new.meta["val"] = value
    return new


def _closed(graph: Graph, nodes: set[Node]) -> set[Node]:
    """Returns nodes of a graph and all nodes on a path between two of them."""
    order = list(graph.nodes)
    after, before = set(nodes), set(nodes)
    for node in order:
        if not after.isdisjoint(node.all_input_nodes) and node.op == "call_function":
            after.add(node)
    for node in reversed(order):
        if not before.isdisjoint(node.users):
            before.add(node)
    return {each for each in after & before if each in nodes or not (is_symbolic(each) or is_effect(each))}


def _shapes(value: Any) -> list[Any]:
    leaves: Iterable[Any] = pytree.tree_leaves(value)
    return [tuple(map(expression, each.shape)) if isinstance(each, torch.Tensor) else expression(each) for each in leaves]
