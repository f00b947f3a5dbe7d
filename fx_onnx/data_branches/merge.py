"""Merges the ONNX models of the paths through a forward: what all paths compute, then an If for each condition.

The models begin with the calls before the first condition. The nodes that every path needs come first; those that only
some paths need stand in the branches of an If.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from fx_onnx.capture.capture import Capture
from fx_onnx.data_branches.condition import DOMAIN
from fx_onnx.data_branches.equal_values import Number, Numbered, Numbers, outer_inputs, reads
from fx_onnx.data_branches.merged_dims import MergedDims
from fx_onnx.data_branches.shared_tail import shared_tail
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.names import Names
from fx_onnx.passes.traversal import all_nodes, all_values, subgraphs

__all__ = ["merge_paths"]

_Env = Mapping[Number, ir.Value]
_Output = tuple[str, str]
_Pair = tuple[ir.Value, ir.Value]


def merge_paths(captures: Sequence[Capture], models: Sequence[ir.Model]) -> ir.Model:
    """Returns the model that takes the path of its data.

    Args:
        captures: the captures of the paths.
        models: their models, in which a condition is a node ``fx_onnx::Condition``.

    Raises:
        CaptureError: the results of two paths have another number, dtype or rank, a condition is another one on each
            path, or it is in a body.
    """
    numbers: Numbers = {}
    paths = [Numbered(*pair, numbers) for pair in zip(captures, models, strict=True)]
    for path in paths:
        if len(path.conditions) != len(path.facts):
            raise CaptureError(
                "A condition on data is in the body of a loop or another operator, which torch.export captures apart "
                f"{path.facts[-1].line}; move it out of the body, or write it with torch.cond.",
                id=MessageId.BRANCH_ON_DATA,
            )
    return _Merger(paths).model()


class _Merger:
    """Merges the numbered models of all paths."""

    def __init__(self, paths: Sequence[Numbered]) -> None:
        self._paths = paths
        self._first = paths[0].model.graph
        self._outputs = _outputs_of(paths)
        self._names = Names(value.name for value in self._outputs.values())
        self._dims = MergedDims(paths)
        self._needed = {path: self._needs(path) for path in paths}
        self._graph = ir.Graph(
            (), (), nodes=(), opset_imports=self._imports(), name=self._first.name, doc_string=self._first.doc_string
        )

    def model(self) -> ir.Model:
        """Returns the merged model."""
        first, graph = self._paths[0].model, self._graph
        graph.metadata_props.update(first.graph.metadata_props)
        env = dict(self._inputs())
        results = self._scope(graph, env, self._paths, 0)
        for value, like in zip(results, self._outputs.values(), strict=True):
            if value.producer() is None or value in graph.outputs:
                value = self._identity(graph, value)
            value.name = like.name
            value.metadata_props.update(like.metadata_props)
            graph.outputs.append(value)
        model = ir.Model(
            graph,
            ir_version=max(path.model.ir_version for path in self._paths),
            producer_name=first.producer_name,
            producer_version=first.producer_version,
            functions=list({key: func for path in self._paths for key, func in path.model.functions.items()}.values()),
        )
        model.meta[metadata.DATA_DEPENDENT_DIMS] = frozenset(self._dims.data_dependent)
        return model

    # ---------------------------------------------------------------- what each path has

    def _imports(self) -> dict[str, int]:
        imports = {
            domain: version for path in self._paths for domain, version in path.model.graph.opset_imports.items()
        }
        others = {node.domain for path in self._paths for outer in path.nodes.values() for node in _with_inner(outer)}
        return {domain: version for domain, version in imports.items() if domain != DOMAIN or domain in others}

    def _needs(self, path: Numbered) -> set[int]:
        """Returns what a path computes for its results and for the conditions at which another path differs."""
        waiting = [self._result(path, output) for output in self._outputs]
        waiting += [number for depth, number in enumerate(path.conditions) if self._splits(path, depth)]
        return path.closure(waiting)

    def _splits(self, path: Numbered, depth: int) -> bool:
        before, answer = path.answers[:depth], path.answers[depth]
        return any(other.answers[: depth + 1] == (*before, not answer) for other in self._paths)

    def _inputs(self) -> dict[Number, ir.Value]:
        """Registers the inputs and the weights; returns the values by number."""
        env: dict[Number, ir.Value] = {}
        graph, needed = self._graph, set().union(*self._needed.values())
        states = {
            str(value.name) for path in self._paths for value in path.model.graph.inputs if value.is_initializer()
        }
        for value in self._first.inputs:
            if not value.is_initializer():
                number = self._paths[0].values[value]
                env[number] = new = self._new(value, self._dims.of_input(number))
                new.metadata_props.update(value.metadata_props)
                graph.inputs.append(new)
        weights = {(number, 0): value for path in self._paths for number, value in reversed(path.weights.items())}
        for number, value in reversed(weights.items()):
            is_state = str(value.name) in states and metadata.INPUT_KIND in value.metadata_props
            if number[0] in needed or is_state or metadata.INPUT_KIND in value.metadata_props:
                env[number] = new = self._new(value, value.shape)
                new.const_value = value.const_value
                new.metadata_props.update(value.metadata_props)
                new.meta.update(value.meta)
                graph.register_initializer(new)
                if is_state:
                    graph.inputs.append(new)
        return env

    def _result(self, path: Numbered, output: _Output) -> Number:
        """Returns the number of a result on a path; one that the path does not write is the state before the call."""
        own = dict(_named_outputs(path))
        if output in own:
            return path.values[own[output]]
        states = (pair for numbered in self._paths for pair in numbered.values.items() if pair[0].producer() is None)
        return next(number for value, number in states if value.name == output[0])

    # ---------------------------------------------------------------- scopes

    def _scope(
        self, graph: ir.Graph, env: dict[Number, ir.Value], paths: Sequence[Numbered], depth: int
    ) -> list[ir.Value]:
        """Emits what some paths compute into a graph; returns the results."""
        path, *others = paths
        common = self._needed[path].intersection(*(self._needed[other] for other in others))
        self._emit(graph, env, path, common, paths)
        wanted = [[self._result(numbered, output) for output in self._outputs] for numbered in paths]
        if not others:
            return [env[number] for number in wanted[0]]
        while len({numbered.answers[depth] for numbered in paths}) == 1:
            depth += 1
        condition = self._condition(graph, env, paths, depth)
        fixed = [
            env.get(first) if len({*numbers}) == 1 else None
            for first, *numbers in zip(*wanted, *wanted[:1], strict=True)
        ]
        return self._branches(graph, env, paths, depth, condition, fixed)

    def _condition(
        self, graph: ir.Graph, env: dict[Number, ir.Value], paths: Sequence[Numbered], depth: int
    ) -> ir.Value:
        """Returns the condition at which paths differ; emits it if only the calls of one path are those of all.

        Raises:
            CaptureError: each path computes another condition.
        """
        for candidates in (paths, [numbered for numbered in paths if numbered.facts[depth].is_general]):
            if len({candidate.conditions[depth] for candidate in candidates}) == 1:
                path, number = candidates[0], candidates[0].conditions[depth]
                self._emit(graph, env, path, path.closure([number]), paths)
                return env[number]
        raise CaptureError(
            "A condition on data is another one on each path through the forward, because the code that follows fixes "
            f"a size, or draws numbers in Python {paths[0].facts[depth].line}; write the branch with torch.cond.",
            id=MessageId.BRANCH_ON_DATA,
        )

    def _emit(
        self,
        graph: ir.Graph,
        env: dict[Number, ir.Value],
        path: Numbered,
        needed: Container[int],
        paths: Sequence[Numbered],
    ) -> None:
        """Emits the nodes of a path that are needed and not there yet into a graph that some paths reach."""
        for number, node in path.nodes.items():
            if number in needed and (number, 0) not in env:
                graph.append(self._copied(node, env, path, paths))

    def _branches(
        self,
        graph: ir.Graph,
        env: _Env,
        paths: Sequence[Numbered],
        depth: int,
        condition: ir.Value,
        fixed: Sequence[ir.Value | None],
    ) -> list[ir.Value]:
        """Emits an If; returns the results, of which those that are fixed are known before it."""
        bodies, results, marker = [], [], paths[0].markers[depth]
        for answer in (True, False):
            body = ir.Graph(
                (), (), nodes=(), opset_imports=dict(graph.opset_imports), name=self._names.unique("branch")
            )
            own = [path for path in paths if path.answers[depth] is answer]
            results.append(self._scope(body, dict(env), own, depth + 1))
            bodies.append(body)
        pairs: list[_Pair] = [
            (one, other) if known is None else (known, known) for known, one, other in zip(fixed, *results, strict=True)
        ]
        for one, other in pairs:
            _refuse_unlike(one, other, paths[0].facts[depth].line)
        return self._joined(graph, bodies, pairs, condition, marker)

    def _joined(
        self, graph: ir.Graph, bodies: Sequence[ir.Graph], pairs: Sequence[_Pair], condition: ir.Value, marker: ir.Node
    ) -> list[ir.Value]:
        """Emits an If of two branches, and behind it what both compute alike; returns the result of each pair."""
        tail = shared_tail(bodies, pairs)
        moved = {value for inner in tail for value in inner.outputs}
        returned: dict[_Pair, ir.Value] = {}

        def behind(one: ir.Value | None, other: ir.Value | None) -> Any:
            if one is None or other is None or one is other or one in moved:
                return one
            if (one, other) not in returned:
                returned[one, other] = self._new(one, self._dims.merged([one.shape, other.shape]))
            return returned[one, other]

        inputs = {inner: list(map(behind, outer_inputs(inner), outer_inputs(twin))) for inner, twin in tail.items()}
        results = [behind(*pair) for pair in pairs]
        for inner, twin in tail.items():
            for one, other in zip(_values(inner), _values(twin), strict=True):
                one.shape = self._dims.merged([one.shape, other.shape])
        bodies[0].remove(tail)
        for reader, index in [read for twin in tail.values() for read in reads(twin)]:
            reader.replace_input_with(index, None)
        bodies[1].remove(tail.values())
        if returned:
            for index, body in enumerate(bodies):
                self._finish(body, [pair[index] for pair in returned])
            attributes = [ir.AttrGraph("then_branch", bodies[0]), ir.AttrGraph("else_branch", bodies[1])]
            node = ir.Node("", "If", [condition], attributes, outputs=list(returned.values()))
            node.name = node.outputs[0].name
            node.metadata_props.update(marker.metadata_props)
            graph.append(node)
        for inner, given in reversed(inputs.items()):
            for (reader, index), value in zip(list(reads(inner)), given, strict=True):
                reader.replace_input_with(index, value)
            graph.append(inner)
        return results

    def _finish(self, body: ir.Graph, results: Sequence[ir.Value]) -> None:
        """Makes values the results of a body, which computes each of them once."""
        for value in results:
            producer = value.producer()
            is_own = producer is not None and producer.graph is body and value not in body.outputs
            body.outputs.append(value if is_own else self._identity(body, value))

    # ---------------------------------------------------------------- nodes and values

    def _identity(self, graph: ir.Graph, value: ir.Value) -> ir.Value:
        new = self._new(value, value.shape)
        graph.append(ir.Node("", "Identity", [value], outputs=[new], name=new.name))
        return new

    def _new(self, like: ir.Value, shape: ir.Shape | None) -> ir.Value:
        """Returns a value with a name of its own, the dtype of another value and a shape."""
        shape = None if shape is None else shape.copy()
        return ir.Value(name=self._names.unique(str(like.name)), type=like.type, shape=shape)

    def _copied(self, node: ir.Node, env: dict[Number, ir.Value], path: Numbered, paths: Sequence[Numbered]) -> ir.Node:
        """Returns a copy of a node of a path, and adds its results to the values of a scope that some paths reach."""
        numbers = path.values
        outputs = []
        for value in node.outputs:
            new = env[numbers[value]] = self._new(value, self._dims.of(numbers[value], paths))
            new.metadata_props.update(value.metadata_props)
            outputs.append(new)
        attributes = [self._attribute(attribute, env, numbers) for attribute in node.attributes.values()]
        new_node = ir.Node(
            node.domain,
            node.op_type,
            [None if value is None else env[numbers[value]] for value in node.inputs],
            attributes,
            overload=node.overload,
            version=node.version,
            outputs=outputs,
            name=outputs[0].name if outputs else node.name,
            doc_string=node.doc_string,
            metadata_props=dict(node.metadata_props),
        )
        new_node.meta.update(node.meta)
        return new_node

    def _attribute(self, attribute: ir.Attr, env: _Env, numbers: Mapping[ir.Value, Number]) -> ir.Attr:
        """Returns an attribute whose bodies, if it has some, read the values of a scope and have names of their own."""
        if attribute.type is not ir.AttributeType.GRAPH:
            return attribute
        body = attribute.as_graph().clone(allow_outer_scope_values=True)
        for value in all_values(body):
            value.name = self._names.unique(str(value.name))
        for node in all_nodes(body):
            for index, read in enumerate(node.inputs):
                if read is not None and read in numbers:
                    node.replace_input_with(index, env[numbers[read]])
        return ir.AttrGraph(attribute.name, body)


def _outputs_of(paths: Sequence[Numbered]) -> dict[_Output, ir.Value]:
    """Returns the results of the model, and then the new values of the state that any path changes.

    Raises:
        CaptureError: two paths return another number of results.
    """
    outputs: dict[_Output, ir.Value] = {}
    results = [list(_named_outputs(path)) for path in paths]
    if len({len([key for key, _ in pairs if not key[0]]) for pairs in results}) > 1:
        raise CaptureError(
            "The forward returns another number of results where it takes another branch on data; return the same "
            "structure from each branch.",
            id=MessageId.BRANCH_ON_DATA,
        )
    for key, value in (pair for pairs in results for pair in pairs):
        outputs.setdefault(key, value)
    return dict(sorted(outputs.items(), key=lambda item: bool(item[0][0])))


def _named_outputs(path: Numbered) -> Iterator[tuple[_Output, ir.Value]]:
    for index, value in enumerate(path.model.graph.outputs):
        target = value.metadata_props.get(metadata.OUTPUT_TARGET, "")
        yield (target, str(value.metadata_props.get(metadata.OUTPUT_KIND)) if target else str(index)), value


def _refuse_unlike(one: ir.Value, other: ir.Value, line: str) -> None:
    """Raises a CaptureError if the results of two branches have another dtype or rank."""
    ranks = [None if value.shape is None else len(value.shape) for value in (one, other)]
    if one.dtype != other.dtype or (None not in ranks and ranks[0] != ranks[1]):
        texts = [
            f"{str(value.dtype).lower()} with {rank} axes" for value, rank in zip((one, other), ranks, strict=True)
        ]
        raise CaptureError(
            f"A result is {texts[0]} where a condition on data is true, and {texts[1]} where it is false"
            f" {line}; let both branches return the same dtype and rank.",
            id=MessageId.BRANCH_ON_DATA,
        )


def _values(node: ir.Node) -> list[ir.Value]:
    return [*node.outputs, *(value for body in subgraphs(node) for value in all_values(body))]


def _with_inner(node: ir.Node) -> list[ir.Node]:
    return [node, *(inner for body in subgraphs(node) for inner in all_nodes(body))]
