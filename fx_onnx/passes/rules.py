"""Rules: rewrites whose pattern reads like the expression that it matches, and whose function builds the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.extension_points.plugins import Group
from fx_onnx.messages.arguments import did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError, first_line
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.schemas import attribute_names, operator_names
from fx_onnx.passes._pattern_parts import Match, NodeStep, Pattern
from fx_onnx.passes.builder import NewNode, NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.patterns import PatternError, parse
from fx_onnx.passes.rewriter import Attempt, Rewrite, has_reference

__all__ = ["DeclinedError", "Result", "Rule", "check_rules", "rule", "with_named"]

Result = Value | Sequence[Value | None] | str | None
"""What the function of a rule returns: the value that replaces the result, or one for each result of the root; a clause
that says why the match is declined; or None where there is nothing to say."""


class DeclinedError(Exception):
    """A rule declines the match: what helpers of its function raise, with the clause that the function would return."""


class Rule(Rewrite):
    """A rewrite of the nodes that a pattern matches. ``rule`` makes it of a function.

    Attributes:
        name: the name of the function.
        function: the function.
        texts: the patterns as texts.
        is_custom: whether a user wrote it. Then each result is checked, and its nodes have the function in their
            ``meta``.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        patterns: Sequence[str],
        *,
        since: int,
        until: int | None,
        where: Mapping[str, Callable[[Any], bool]],
    ) -> None:
        super().__init__()
        self.name = function.__name__
        self.since, self.until = since, until
        self.__doc__, self.__module__ = function.__doc__, function.__module__
        self.function, self.texts, self._where = function, tuple(patterns), where
        self.is_custom = function.__module__.partition(".")[0] != __name__.partition(".")[0]

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns, parsed when they are first used.

        Raises:
            PatternError: a text is no pattern, or does not end at a node.
        """
        parsed = tuple([parse(text, self._where) for text in self.texts])
        for text, pattern in zip(self.texts, parsed, strict=True):
            if not pattern.roots:
                raise PatternError(f"{text!r} does not end at a node")
        return parsed

    @cached_property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)

    def check(self) -> None:
        """Checks the patterns and the function's parameters.

        Raises:
            PatternError: a pattern is none, has an operator or an attribute that ONNX does not define, or none has a
                parameter's name.
        """
        names = {"f", "node", "nodes"}
        for part in (part for pattern in self.patterns for part in pattern.all_parts()):
            names.update(part.own_names())
            _check_schema(part)
        for name in (*self._parameters, *self._where):
            if name not in names:
                raise PatternError(f"no pattern has the name {name}, which the function or a condition needs")

    def roots(self) -> Collection[tuple[str, str]]:
        """Returns the domain and type of the operators at which the patterns end."""
        return dict.fromkeys(root for pattern in self.patterns for root in pattern.roots)

    @cached_property
    def _attempts(self) -> Mapping[tuple[str, str], Sequence[Attempt]]:
        """What rewrites a node, by its domain and type."""
        by_root: dict[tuple[str, str], list[Attempt]] = {}
        for matcher in (matcher for pattern in self.patterns for matcher in pattern.matchers(self._accept)):
            attempt = Attempt(_start(matcher.step, self._where.get("node")), matcher.fits)
            for root in dict.fromkeys(matcher.roots):
                by_root.setdefault(root, []).append(attempt)
        return by_root

    def attempts(self, root: tuple[str, str]) -> Iterable[Attempt]:
        """Returns what rewrites the nodes that each pattern matches."""
        return self._attempts[root]

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces the results of a node where a pattern matches and the function accepts the match."""
        return any(attempt.rewrite(node, editor) for attempt in self._attempts[node.domain, node.op_type])

    def _accept(self, match: Match) -> bool:
        bound, node, editor = match.bound, match.node, match.editor
        if editor.function is not None and any(map(has_reference, match.nodes)):
            return False
        if len(match.visited) > 1 and (read := _read_outside(match)) is not None:
            return self.declines(node, "another node reads the %s", read.op_type)
        bound["f"] = f = _RuleBuilder(node, editor, None)
        bound["node"] = node
        if "nodes" in self._parameters:
            bound["nodes"] = match.nodes
        try:
            result = self.function(*map(bound.get, self._parameters))
            result = (result,) if isinstance(result, Value) else result
            result = result if result is None or isinstance(result, str) else tuple(result)
        except DeclinedError as error:
            result = str(error)
        except Exception as error:
            raise ArgumentError(f"The rule {self.name} fails at the node {node.name}: {first_line(error)}.") from error
        if result is None or isinstance(result, str):
            f.discard()
            return self.declines(node, result) if result else False
        return self._replace_checked(f, match, result) if self.is_custom else f.replace(match.nodes, result)

    def _replace_checked(self, f: _RuleBuilder, match: Match, results: tuple[Value | None, ...]) -> bool:
        """Replaces the results of the node by others of the same dtypes and shapes, and marks what computes them.

        Raises:
            ArgumentError: a result has another dtype, rank or size than the one that it replaces, or there are more or
                fewer.
        """
        outputs = match.node.outputs
        pairs = [(old, new) for old, new in zip(outputs, results, strict=False) if new is not None]
        wrong = [f"{_described(old)} by {_described(new)}" for old, new in pairs if not _is_alike(old, new)]
        if len(results) != len(outputs):
            wrong = [f"{len(outputs)} results by {len(results)}"]
        if wrong:
            raise ArgumentError(
                f"The rule {self.name} replaces {wrong[0]} at the node {match.node.name}; a result has the dtype and "
                "the shape of what it replaces."
            )
        readers = [use.node for output in outputs for use in output.uses()]
        replaced = f.replace(match.nodes, results)
        for node in (match.node, *(new.node for new in f.created if new.is_made)) if f.created else readers:
            node.meta[metadata.RULE] = self.function
        return replaced


def _start(step: NodeStep, holds: Callable[[Any], bool] | None) -> Callable[[ir.Node, Editor], bool]:
    if holds is None:
        return lambda node, editor: step(node, Match(node, editor))
    return lambda node, editor: holds(node) and step(node, Match(node, editor))


def _check_schema(part: Pattern) -> None:
    """Checks the operators and the attributes of a part of a pattern.

    Raises:
        PatternError: ONNX does not define one in any opset.
    """
    for op_type in (op_type for domain, op_type in part.roots if not domain):
        if not onnx.defs.has(op_type):
            raise PatternError(f"ONNX has no operator {op_type}{did_you_mean(op_type, operator_names())}")
        for name, _ in part.attributes:
            if name not in (known := attribute_names(op_type)):
                raise PatternError(f"{op_type} of ONNX has no attribute {name}{did_you_mean(name, known)}")


def _is_alike(old: Value, new: Value) -> bool:
    """Returns whether a value can have the dtype and the shape of another one, as far as they are known."""
    if old.dtype is not None and new.dtype is not None and old.dtype != new.dtype:
        return False
    if old.shape is None or new.shape is None:
        return True
    sizes = [(a, b) for a, b in zip(old.shape, new.shape, strict=False) if isinstance(a, int) and isinstance(b, int)]
    return len(old.shape) == len(new.shape) and all(a == b for a, b in sizes)


def _described(value: Value) -> str:
    return f"{value.dtype}{value.shape}"


class _RuleBuilder(NodeBuilder):
    """Creates the nodes of a rule's function, which join the graph only if the rule replaces the node."""

    def _add(self, new: NewNode) -> None:
        pass

    def discard(self) -> None:
        """Gives up the nodes."""
        for new in self.created:
            if new.is_made:
                new.node.resize_inputs(0)

    def replace(self, matched: Sequence[ir.Node], results: tuple[Value | None, ...]) -> bool:
        """Makes the consumers of the node read the results. Returns whether that was possible.

        Args:
            matched: the nodes of the match.
            results: what replaces each result of the node; None for one that stays.
        """
        node, editor = self.node, self.editor
        if self._becomes(matched[1:], results):
            return True
        made = {value for new in self.created for value in new.results}
        if len(results) == 1 and results[0] is not None and results[0] not in made:
            if editor.replace_with_value(node, results[0]):
                self.discard()
                return True
            if node.op_type == "Identity":
                return False  # an output of the graph, whose name the value cannot take
        results = tuple([value if value is None or value in made else self.Identity(value) for value in results])
        if self._becomes(matched[1:], results):
            return True
        for new in self.created:
            self._place(new)
        for output, value in zip(node.outputs, results, strict=True):
            made_node = None if value is None else value.producer()
            if value is None or made_node is None:
                continue
            for absorbed in matched[1:]:
                made_node.metadata_props.update(metadata.merged(absorbed.metadata_props, made_node.metadata_props))
            editor.replace_result(output, value)
            editor.enqueue(use.node for use in value.uses())
            if output is node.outputs[0]:
                made_node.name, node.name = node.name or made_node.name, made_node.name
        for old in matched:
            editor.remove_if_unused(old)
        return True

    def _becomes(self, absorbed: Sequence[ir.Node], results: tuple[Value | None, ...]) -> bool:
        """Turns the node into the last new node, if that has all the results and nothing reads it yet."""
        new = self.created[-1] if self.created else None
        if new is None or results != new.results or len(results) != len(self.node.outputs):
            return False
        if new.is_made:
            if any(value.uses() for value in results if value is not None):
                return False
            new.node.resize_inputs(0)
        for earlier in self.created[:-1]:
            self._place(earlier)
        self.editor.replace(self.node, new.op_type, new.inputs, new.attributes, absorbed, new.domain)
        return True


PLUGINS = Group("fx_onnx.rules", "a rule or a list of rules", lambda value: isinstance(value, (Rule, list, tuple)))


def with_named(rules: Any) -> Any:
    """Returns rules that a user gave, with those of plug-ins instead of their names. ``check_rules`` checks the rest.

    Raises:
        ArgumentError: no plug-in has such a name.
        PluginError: a plug-in cannot be loaded, or its rules are not valid.
    """
    return [rule for given in rules for rule in _of_plugin(given)] if isinstance(rules, (list, tuple)) else rules


def _of_plugin(given: Any) -> Sequence[Any]:
    if not isinstance(given, str):
        return (given,)
    plugin = PLUGINS.find(given)
    if plugin is None:
        hint = did_you_mean(given, PLUGINS.names()) or "; install the package that has it."
        raise ArgumentError(f"No installed plug-in has rules named {shown(given)}{hint}")
    rules = [plugin.value] if isinstance(plugin.value, Rule) else plugin.value
    try:
        check_rules(rules)
    except ArgumentError as error:
        plugin.refuse(error)
    return list(rules)


def check_rules(rules: Any) -> None:
    """Checks rules that a user gave.

    Raises:
        ArgumentError: one is no rule, a pattern is none, or it names an operator, an attribute or a parameter that does
            not exist.
    """
    if isinstance(rules, Rule) or not isinstance(rules, Sequence):
        raise ArgumentError(f"rules must be a list of rules, not {shown(rules)}; see fx_onnx.rule.")
    for given in rules:
        if not isinstance(given, Rule):
            raise ArgumentError(f"{shown(given)} in rules is not a rule; decorate a function with fx_onnx.rule(...).")
        try:
            given.check()
        except PatternError as error:
            end = "" if str(error).endswith("?") else "."
            raise ArgumentError(f"The rule {given.name} is not valid (see fx_onnx.rule): {error}{end}") from error


def _read_outside(match: Match) -> ir.Node | None:
    """Returns a node that the rewrite would absorb, but whose results are read outside of the match or of its graph."""
    private = [node for nodes, shared in match.visited if not shared for node in nodes if node is not match.node]
    for node in private:
        uses = sum([len(output.uses()) for output in node.outputs])
        is_returned = any(output.is_graph_output() for output in node.outputs)
        if is_returned or (uses > 1 and uses > private.count(node)) or node.graph is not match.node.graph:
            return node
    return None


def rule(
    *patterns: str,
    since: int = 0,
    until: int | None = None,
    where: Mapping[str, Callable[[Any], bool]] | Iterable[tuple[str, Callable[[Any], bool]]] = (),
) -> Callable[[Callable[..., Result]], Rule]:
    """Makes a ``Rule`` of a function that builds the result of a match.

    The function has as parameters the names of the patterns that it needs, which are None where an alternative has
    none, and any of ``f``, the ``NodeBuilder``; ``node``, the last node of the match; and ``nodes``, all of them.

    Args:
        patterns: the patterns, in the language of fx_onnx/passes/patterns.py; the first that matches counts.
        since: the first opset at which the rule applies.
        until: the last opset at which it applies.
        where: conditions on values of the patterns, by name. That of ``node``, the last node, is checked first of all.

    Returns:
        A decorator. The function's name is that of the rule, and its docstring says what is legal and why.
    """
    return lambda function: Rule(function, patterns, since=since, until=until, where=dict(where))
