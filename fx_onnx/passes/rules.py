"""Rules: rewrites whose pattern reads like the expression that it matches, and whose function builds the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.core import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.patterns import Match, Pattern, PatternError, parse
from fx_onnx.passes.rewriter import Rewrite, has_reference

__all__ = ["Rule", "rule"]

Result = Value | Sequence[Value | None] | str | None
"""What the function of a rule returns: the value that replaces the result, or one for each result of the root; a clause
that says why the match is declined; or None where there is nothing to say."""


class Rule(Rewrite):
    """A rewrite of the nodes that a pattern matches. ``rule`` makes it of a function."""

    def __init__(
        self,
        function: Callable[..., Result],
        patterns: Sequence[str],
        *,
        since: int,
        until: int | None,
        where: Mapping[str, Callable[[Value], bool]],
    ) -> None:
        super().__init__()
        self.name = function.__name__
        self.since, self.until = since, until
        self.__doc__, self.__module__ = function.__doc__, function.__module__
        self.function, self.texts, self._where = function, tuple(patterns), where

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns, parsed when they are first used.

        Raises:
            PatternError: a text is no pattern, or does not end at a node.
        """
        found = tuple(map(parse, self.texts))
        for text, each in zip(self.texts, found, strict=True):
            if not each.roots:
                raise PatternError(f"{text!r} does not end at a node")
        return found

    @cached_property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)

    def roots(self) -> Collection[tuple[str, str]]:
        """Returns the domain and type of the operators at which the patterns end."""
        return dict.fromkeys(root for each in self.patterns for root in each.roots)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces the results of a node where a pattern matches and the function accepts the match."""
        root = node.domain, node.op_type
        for pattern in self.patterns:
            if root in pattern.roots:
                for match in pattern.match_node(node, Match()):
                    if self._apply(match, node, editor):
                        return True
        return False

    def _apply(self, match: Match, node: ir.Node, editor: Editor) -> bool:
        for name, holds in self._where.items():
            value = match.bound.get(name)
            if value is not None and not holds(value):
                return False
        if editor.function is not None and any(has_reference(each) for each in match.nodes):
            return False
        if (read := _read_outside(match, node)) is not None:
            return self.declines(node, "another node reads the %s", read.op_type)
        f = NodeBuilder(node, editor, node.outputs[0].dtype)
        given = {**match.bound, "f": f, "node": node, "nodes": tuple(dict.fromkeys(match.nodes))}
        result = self.function(*(given.get(name) for name in self._parameters))
        if isinstance(result, (Value, Sequence)) and not isinstance(result, str):
            results = [result] if isinstance(result, Value) else list(result)
            if self._replace(match, node, results, f, editor):
                return True
        for each in reversed(f.created):
            editor.remove_if_unused(each)
        return self.declines(node, result) if isinstance(result, str) else False

    def _replace(
        self, match: Match, node: ir.Node, results: Sequence[Value | None], f: NodeBuilder, editor: Editor
    ) -> bool:
        """Makes the consumers of the node read the results. Returns whether that was possible."""
        for output, value in zip(node.outputs, results, strict=True):
            if value is None:
                continue
            if value.producer() not in f.created:
                if editor.replace_with_value(node, value):
                    return True
                if node.op_type == "Identity":
                    return False
                value = f.Identity(value)  # an output of the graph, whose name the value cannot take
            new = next(each for each in f.created if value in each.outputs)
            for each in dict.fromkeys(match.nodes):
                new.metadata_props.update(metadata.merged(each.metadata_props, new.metadata_props))
            editor.replace_result(output, value)
            editor.enqueue(use.node for use in value.uses())
            if output is node.outputs[0]:
                new.name, node.name = node.name or new.name, new.name
        editor.remove_if_unused(node)
        return True


def _read_outside(match: Match, root: ir.Node) -> ir.Node | None:
    """Returns a node that the rewrite would absorb, but whose results are read outside of the match or of its graph."""
    for node in match.private:
        if node is root:
            continue
        uses = sum(len(output.uses()) for output in node.outputs)
        is_returned = any(output.is_graph_output() for output in node.outputs)
        if is_returned or uses > match.private.count(node) or node.graph is not root.graph:
            return node
    return None


def rule(
    *patterns: str,
    since: int = 0,
    until: int | None = None,
    where: Mapping[str, Callable[[Value], bool]] | Iterable[tuple[str, Callable[[Value], bool]]] = (),
) -> Callable[[Callable[..., Result]], Rule]:
    """Makes a ``Rule`` of a function that builds the result of a match.

    The function has as parameters the names of the patterns that it needs, which are None where an alternative has
    none, and any of ``f``, the ``NodeBuilder``; ``node``, the last node of the match; and ``nodes``, all of them.

    Args:
        patterns: the patterns, in the language of fx_onnx/passes/patterns.py; the first that matches counts.
        since: the first opset at which the rule applies.
        until: the last opset at which it applies.
        where: conditions on values of the patterns, by name.

    Returns:
        A decorator. The function's name is that of the rule, and its docstring says what is legal and why.
    """
    return lambda function: Rule(function, patterns, since=since, until=until, where=dict(where))
