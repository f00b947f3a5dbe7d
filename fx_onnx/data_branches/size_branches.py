"""Branches for sizes that depend on data: a graph that is right for more than one row → one that is right for one, too.

torch captures ``nonzero(mask).squeeze()`` for a size that is not 1. For 1, the same calls compute tensors of other
shapes. The calls that compute or read such a tensor become the branches of an ``If``: the captured calls, and the same
calls on a size that is 1. In each branch all shapes are known, so each stage after this one treats it as any graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import sympy
import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.fx_nodes import fake_mode, fake_results, is_effect, is_symbolic, makes_symbols, meta_value, origin
from fx_onnx.aten.tracing.guard_check import undone_guards
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.sizes.symbolic_sizes import expression, is_data_dependent
from fx_onnx.torch_internals.guard_private import as_made
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import pytree, unset_fake_temporarily

__all__ = ["branch_on_data_sizes"]

Case = Mapping[sympy.Symbol, int]
"""Values of sizes that depend on data for which the captured graph may be another one."""
_CAPTURED = "fx_onnx.captured"
"""In the ``meta`` of a node: the value with which torch captured the calls that read it."""
_MANY = 4
"""The number of sizes that one result may depend on; each doubles the number of branches."""


def _mapped(value: Any, changed: Callable[[Any], Any], mode: Any) -> Any:
    """Returns tensors and numbers with other sizes; a value whose expressions stay as it is.

    Args:
        value: the tensors and numbers.
        changed: returns the new expression of a symbolic size.
        mode: makes the new ones.
    """
    if isinstance(value, (list, tuple)):
        mapped = [_mapped(item, changed, mode) for item in value]
        return value if all(map(operator.is_, mapped, value)) else type(value)(mapped)
    if isinstance(value, torch.Tensor):
        shape = _mapped(tuple(sizes := value.shape), changed, mode)
        if all(map(operator.is_, shape, sizes)):
            return value
        return value.new_empty([max(size, 0) if isinstance(size, int) else size for size in shape])  # of `n - 2`
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
    graph, mode = program.graph, fake_mode(program.graph)
    if sizes:
        symbols = {**_symbols(graph), **_separated(graph, mode)}
        _Brancher(program, mode).branch([{symbol: size} for symbol, size in product(symbols, sizes)])
    return program


def _sizes(node: Node) -> Iterator[torch.SymInt]:
    """Yields the symbolic sizes of the tensors that a node computes, and its symbolic number."""
    for value in fake_results(node) if node.meta.get("val") is not None else ():
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                yield size


def _symbols(graph: Graph) -> dict[sympy.Symbol, None]:
    """Returns the symbols that depend on data, in the order of the graph."""
    symbols = (symbol for node in graph.nodes for size in _sizes(node) for symbol in _symbols_of(size))
    return {symbol: None for symbol in symbols if is_data_dependent(symbol)}


def _replaced(symbols: Mapping[Any, Any], size: Any) -> Any:
    return as_made(size).xreplace(symbols)


def _symbols_of(size: Any) -> list[Any]:
    return sorted(expression(size).free_symbols, key=str)


def _separated(graph: Graph, mode: Any) -> dict[sympy.Symbol, None]:
    """Gives each size that torch made equal to another one a symbol of its own again, and returns these symbols.

    ``x[mask] + y`` with 3 rows of y makes the selected rows 3, but one row broadcasts. The calls that read such a value
    take the captured one.
    """
    fresh: dict[Any, Any] = {}
    for node in graph.nodes:
        lost = {s for size in _sizes(node) for s in as_made(size).free_symbols - expression(size).free_symbols}
        lost = {symbol for symbol in lost if is_data_dependent(symbol)}
        if lost and (is_symbolic(node) or fresh.keys().isdisjoint(lost)):
            with mode.shape_env.ignore_fresh_unbacked_symbols():
                fresh.update(
                    {symbol: expression(mode.shape_env.create_unbacked_symint()) for symbol in lost - fresh.keys()}
                )
            node.meta[_CAPTURED] = captured = node.meta["val"]
            with mode:
                node.meta["val"] = _mapped(captured, partial(_replaced, fresh), mode)
    return dict.fromkeys(fresh.values())


@dataclass
class _Brancher:
    """Puts the calls that depend on small sizes into branches.

    Attributes:
        program: the program, which receives the bodies of the branches.
        mode: the mode of its fake tensors.
    """

    program: AtenProgram
    mode: Any

    def branch(self, cases: Sequence[Case]) -> None:
        """Puts calls into branches; those that depend on several cases into branches for all of these."""
        graph = self.program.graph
        regions: list[tuple[set[Node], list[Case]]] = []
        known: set[Node] = set()
        for given in [*cases, *_joint(cases)]:
            others = self._others(given)
            shared: list[Case] = [{symbol: size} for symbol, size in given.items()]
            if len(given) > 1:
                others = {node for node in others - known if _CAPTURED not in node.meta}
                read = {s for node in _before(graph, others) for size in _sizes(node) for s in _symbols_of(size)}
                shared = [case for case in shared if not read.isdisjoint(case)]
            known |= others
            region = self._region(others)
            while overlapping := next((earlier for earlier in regions if not region.isdisjoint(earlier[0])), None):
                regions.remove(overlapping)
                region = _closed(graph, region | overlapping[0])
                shared = [*overlapping[1], *(case for case in shared if case not in overlapping[1])]
            if region:
                regions.append((region, shared))
        for region, shared in regions:
            nodes = [node for node in graph.nodes if node in region]
            if len(shared) > _MANY:
                raise CaptureError(
                    f"The shape of a result depends on {len(shared)} sizes that depend on data{call_line(nodes[0])}; "
                    "state the smallest number of rows with torch._check.",
                    id=MessageId.BRANCH_ON_DATA,
                )
            self._replace(nodes, shared)

    def _others(self, case: Case) -> set[Node]:
        """Returns the calls that compute another shape in a case."""
        return {node for node, _, fits in self._values(case) if not fits}

    def _values(self, case: Case) -> Iterator[tuple[Node, Any, bool]]:
        """Yields each node with another value in a case, the value, and whether it is as captured for this size.

        The value is None where the calls raise an exception in this case, as the model does then.
        """
        values: dict[Node, Any] = {}
        with self.mode, torch.no_grad(), undone_guards(self.mode):
            for node in self.program.graph.nodes:
                if "val" not in node.meta:
                    continue
                captured, value = node.meta["val"], _in_case(node.meta["val"], case, self.mode)
                fits = value is captured or _CAPTURED not in node.meta
                reads = [values[operand] for operand in node.all_input_nodes if operand in values]
                if reads and node.op == "call_function" and node.users:
                    run = None if any(operand is None for operand in reads) else self._run(node, values, value)
                    if run is None or _shapes(run) != _shapes(value):
                        value, fits = run, fits and is_symbolic(node)
                if value is not captured:
                    values[node] = value
                    yield node, value, fits

    def _run(self, node: Node, values: dict[Node, Any], expected: Any) -> Any:
        """Returns the fake results of a call; None if it raises an exception for the values, but not as captured."""

        def arguments(known: dict[Node, Any]) -> tuple[Any, Any]:
            given = (node.args, dict(node.kwargs))
            return map_aggregate(given, lambda a: known.get(a, meta_value(a)) if isinstance(a, Node) else a)

        target: Any = node.target
        args, kwargs = arguments(values)
        ranks = [[tensor.ndim for tensor in _tensors(arguments(known))] for known in (values, {})]
        if ranks[0] != ranks[1] and _raises(target, *arguments(values)) and not _raises(target, *arguments({})):
            return None
        try:
            return expected if makes_symbols(node) else target(*args, **kwargs)
        except Exception:  # an operator refuses the shapes, for example
            return None

    def _region(self, others: set[Node]) -> set[Node]:
        """Returns the calls that compute another shape, or read one, and all calls between them."""
        readers = {user for node in others for user in node.users if user.op == "call_function"}
        calls = {node for node in others | readers if not is_symbolic(node) and not is_effect(node)}
        return _closed(self.program.graph, {node for node in calls if _CAPTURED not in node.meta})

    def _replace(self, region: Sequence[Node], cases: Sequence[Case]) -> None:
        """Replaces calls by branches for cases."""
        graph, inside = self.program.graph, set(region)
        for node in [user for member in region for user in member.users if is_effect(user)]:
            graph.erase_node(node)
        results = [node for node in region if not inside.issuperset(node.users)]
        operands = list(dict.fromkeys(n for member in region for n in member.all_input_nodes if n not in inside))
        operands = [operand for operand in operands if operand.op != "get_attr" or "val" in operand.meta]
        others = set[Node]().union(*map(self._others, [*cases, *_joint(cases)]))
        parts = _Parts(region, results, operands, {index for index, node in enumerate(results) if node in others})
        with graph.inserting_before(region[-1].next):
            call = self._branches(graph, parts, operands, {}, cases)
            for index, node in enumerate(results):
                new = _item(graph, call, index, parts)
                node.replace_all_uses_with(new, lambda user: user not in inside)
        for node in reversed(region):
            graph.erase_node(node)
        if len(results) == 1:
            call.name = results[0].name  # which may be the name of an output

    def _branches(
        self, graph: Graph, parts: _Parts, operands: Sequence[Node], given: Case, cases: Sequence[Case]
    ) -> Node:
        """Adds the call of the branches for the first of some cases, whose bodies have the branches for the others."""
        case, *rest = cases
        ((symbol, size),) = case.items()
        without = [other for other in rest if symbol not in other]
        bodies = [self._body(parts, {**given, **case}, without), self._body(parts, given, rest)]
        number = self.mode.shape_env.create_symintnode(symbol, hint=None)
        condition = graph.call_function(operator.eq, (_number(graph, number), size))
        condition.meta["val"] = number == size
        names = [graph.get_attr(body) for body in bodies]
        call = graph.call_function(torch.ops.higher_order.cond, (condition, *names, tuple(operands)))
        call.meta = {**origin(parts.results[0]), "val": tuple(node.meta["val"] for node in parts.results)}
        call.meta[metadata.OPEN_SHAPES] = parts.open_places
        return call

    def _body(self, parts: _Parts, given: Case, cases: Sequence[Case]) -> str:
        """Adds the graph of a branch to the program and returns its name."""
        body, env = Graph(), dict[Node, Node]()
        for node in parts.operands:
            env[node] = body.placeholder(node.name)
            env[node].meta = {"val": node.meta["val"]}
        if cases:
            call = self._branches(body, parts, [env[node] for node in parts.operands], given, cases)
            body.output(tuple(_item(body, call, index, parts) for index in range(len(parts.results))))
        else:
            self._copy(body, parts, env, {node: value for node, value, _ in self._values(given)})
            body.output(tuple(env[node] for node in parts.results))
        name = f"data_size_{len(self.program.bodies)}"
        self.program.bodies[name] = body
        return name

    def _copy(self, body: Graph, parts: _Parts, env: dict[Node, Node], values: dict[Node, Any]) -> None:
        """Copies the calls of a region; where they raise an exception, these are the captured ones."""
        if any(values.get(node, 0) is None for node in parts.region):
            values = {}
        for node in parts.operands:
            value = values.get(node, node.meta.get(_CAPTURED, node.meta["val"]))
            if value is not node.meta["val"]:
                env[node] = _stated(body, env[node], value)
        for node in [call for call in parts.region if call.users]:
            env[node] = body.node_copy(node, env.__getitem__)
            env[node].meta = {**node.meta, "val": values.get(node, node.meta.get("val"))}


class _Parts(NamedTuple):
    """The calls that become branches.

    Attributes:
        region: the calls in their order.
        results: those that other nodes read.
        operands: the nodes that they read.
        open_places: the places of the results that have another shape in a branch.
    """

    region: Sequence[Node]
    results: Sequence[Node]
    operands: Sequence[Node]
    open_places: set[int]


def _item(graph: Graph, call: Node, index: int, parts: _Parts) -> Node:
    """Returns the node of one result of the branches."""
    new = graph.call_function(operator.getitem, (call, index))
    new.meta = {**parts.results[index].meta, metadata.OPEN_SHAPES: {0} if index in parts.open_places else ()}
    return new


def _in_case(value: Any, case: Case, mode: Any) -> Any:
    """Returns captured tensors and numbers in a case."""
    return _mapped(value, lambda size: expression(size).xreplace({k: sympy.Integer(n) for k, n in case.items()}), mode)


def _joint(cases: Sequence[Case]) -> Iterator[Case]:
    """Yields the cases in which several symbols have one size, as a product of sizes needs."""
    symbols = list(dict.fromkeys(symbol for case in cases for symbol in case))
    for count in range(2, len(symbols) + 1) if len(symbols) <= _MANY else [len(symbols)]:
        for chosen in combinations(symbols, count):
            sizes = [[size for case in cases for own, size in case.items() if own is symbol] for symbol in chosen]
            yield from (dict(zip(chosen, combination, strict=True)) for combination in product(*sizes))


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _raises(target: Any, args: Any, kwargs: Any) -> bool:
    """Returns whether an operator raises an exception for tensors of zeros; some fake kernels check less."""

    def plain(value: Any) -> Any:
        return int(expression(value)) if expression(value).is_number else 3

    def real(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.zeros([plain(size) for size in value.shape], dtype=value.dtype)
        return plain(value) if isinstance(value, torch.SymInt) else value

    with unset_fake_temporarily():
        args, kwargs = pytree.tree_map(real, (args, kwargs))
        try:
            target(*args, **kwargs)
        except Exception:
            return True
    return False


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


def _before(graph: Graph, nodes: set[Node]) -> set[Node]:
    """Returns all that nodes read, directly or not."""
    before = set(nodes)
    for node in reversed(graph.nodes):
        if not before.isdisjoint(node.users):
            before.add(node)
    return before


def _closed(graph: Graph, nodes: set[Node]) -> set[Node]:
    """Returns nodes of a graph and all nodes on a path between two of them."""
    after = set(nodes)
    for node in graph.nodes:
        if not after.isdisjoint(node.all_input_nodes) and node.op == "call_function":
            after.add(node)
    closed = {
        node for node in after & _before(graph, nodes) if node in nodes or not (is_symbolic(node) or is_effect(node))
    }
    lists = [node for node in closed if not isinstance(node.meta.get("val"), torch.Tensor)]
    return closed.union(*(node.users for node in lists))


def _shapes(value: Any) -> list[Any]:
    leaves: Iterable[Any] = pytree.tree_leaves(value)
    return [
        tuple(map(expression, leaf.shape)) if isinstance(leaf, torch.Tensor) else expression(leaf) for leaf in leaves
    ]
