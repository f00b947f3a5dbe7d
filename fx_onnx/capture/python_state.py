"""Finds values of Python that a forward changes: each call of the program starts with the values before the capture.

``python_values.py`` tells which values are compared.

A change alone is no problem: a forward may store the sizes of its input, or count its calls. The code of the model
tells whether a later call may read what an earlier one has left; nothing runs. A value that the code only writes, or
reads only to compute its own new value, as in ``self.calls += 1``, changes no result. Neither does one that each call
writes before it reads it. A value that is built once, as in ``if self.table is None: self.table = torch.arange(8)``, is
the same in each call if it depends on no input, and if the condition decides about nothing else.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import torch

from fx_onnx.capture.patches.data_conditions import is_traced
from fx_onnx.capture.patches.module_hooks import watch_calls
from fx_onnx.capture.python_values import RANDOM, Place, Values, changed_leaves, kind_of_change, names_in, python_values
from fx_onnx.capture.request import Request
from fx_onnx.messages.source_lines import is_internal, is_library, line_text, syntax_tree
from fx_onnx.onnx_model import dtypes
from fx_onnx.torch_internals.trace_private import recorded_node

__all__ = ["ChangedValue", "compares_identity", "frozen_values", "record_changed_values"]


class ChangedValue(NamedTuple):
    """A value that a forward changes and that a later call may read.

    Attributes:
        place: where it is.
        kind: what the new value is.
        is_inside: whether a container or an object holds it.
        line: the first line that changes it, as ``(file:line: code)`` after a space; empty if it is not known.
    """

    place: Place
    kind: str
    is_inside: bool
    line: str


_MAX_STATE = 2**20  # elements
_REMEDIES = {
    "tensor": "Register the tensor as a buffer.",
    "Python number": "Keep the number in a buffer.",
    "module": "Replace the module before the export.",
    "NumPy array": "Register a tensor as a buffer.",
    "Python value": "Pass the value as an argument.",
}


@contextmanager
def record_changed_values(model: torch.nn.Module) -> Iterator[list[ChangedValue]]:
    """Yields the list that receives the values that the forward changes within the context and may read later.

    torch.export restores the attributes after the call of the model, so they are compared when it ends. Those that the
    forward creates stay; traced tensors, which have no values, are removed, and so are buffers that the forward
    makes, which the program does not have. A tensor into which the forward writes what depends on no input, as in
    ``self.calls.add_(1)``, has a new value after the trace; it is restored.
    """
    known = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    buffers = [(module, dict(module._buffers)) for module in model.modules()]
    before, changed = python_values(model, known), list[ChangedValue]()
    after = dict[Place, Values]()

    def compare(call: Callable[[], Any]) -> Any:
        result = call()
        after.update(python_values(model, known))
        changed.extend(_changed_values(model, before, after))
        for module, own in buffers:
            for name in module._buffers.keys() - own.keys():
                del module._buffers[name]
            module._buffers.update({name: None for name, value in own.items() if value is None})
        return result

    all_values = (value for each in before.values() for value in each.values())
    tensors = [(value, value.detach().clone()) for value in all_values if _may_be_state(value)]
    try:
        with watch_calls({model: compare}):
            yield changed
    finally:
        for place, leaves in (after or python_values(model, known)).items():
            found = any(isinstance(leaf, torch.Tensor) and is_traced(leaf) for leaf in leaves.values())
            if found and place not in before and isinstance(place.owner, str):
                delattr(model.get_submodule(place.owner), place.name)
        for tensor, old in tensors:
            if not torch.equal(tensor, old):
                tensor.detach().copy_(old)


def _changed_values(
    model: torch.nn.Module, before: Mapping[Place, Values], after: Mapping[Place, Values]
) -> Iterator[ChangedValue]:
    """Yields the values that have changed and that a later call may read. One that the forward has made counts too."""
    changes = {place: changed_leaves(before.get(place, {}), after.get(place, {})) for place in {**before, **after}}
    changes = {place: found for place, found in changes.items() if found}
    replaced = [
        f"{owner}.{name}".removeprefix(".")
        for (owner, name, _), found in changes.items()
        if any(isinstance(each, torch.nn.Module) for pair in found for each in pair)
    ]
    paths = tuple(f"{path}." for path in replaced)
    changes = {place: found for place, found in changes.items() if not f"{place.owner}.".startswith(paths)}
    code = _Code(model, {place.name for place in changes}) if changes.keys() - {*RANDOM} else None
    for place, found in changes.items():
        line: str | None = ""
        if code is not None and place not in RANDOM:
            line = _line_of_state(code, place, _origin_of(model, (now for _, now in found)))
        if line is not None:
            is_inside = any(() not in each[place] for each in (before, after) if place in each)
            yield ChangedValue(place, kind_of_change(found[0]), is_inside, line)


def _may_be_state(value: Any) -> bool:
    """Returns whether a tensor has values that torch compares, and is small enough to copy: larger ones are weights."""
    is_plain = type(value) is torch.Tensor and value.layout == torch.strided and not value.is_quantized
    return is_plain and not value.is_meta and value.numel() <= _MAX_STATE and not dtypes.is_packed(value.dtype)


def frozen_values(request: Request, changed: Iterable[ChangedValue]) -> Iterator[str]:
    """Yields one sentence for each value that the forward changes and on which its later results may depend."""
    for place, kind, is_inside, line in changed:
        what = f"{'a' if is_inside else 'the'} {kind} {'in ' if is_inside else ''}{place.name!r}"
        yield (
            f"The results of the forward may depend on numbers of {place.name}, and each call of the program "
            "computes with those that the export drew. Draw them with torch.rand."
            if place in RANDOM
            else f"The forward changes {what} of {place}, on which the results of the next call may depend{line}; "
            f"each call of the program starts with the value before the export. {_REMEDIES[kind]}"
        )


# --- what a later call may read ---------------------------------------------------------------------------------------


class _Origin(IntEnum):
    """From what a new value is computed: from constants and weights, from sizes too, or from data."""

    CONSTANTS = 0
    SIZES = 1
    DATA = 2


def _origin_of(model: torch.nn.Module, values: Iterable[Any]) -> _Origin:
    """Returns from what values are computed, by the graph that is being recorded."""
    values = list(values)
    if any(isinstance(each, torch.nn.Module) for each in values):
        return _Origin.DATA  # a module has weights, and computes what no graph tells
    found = _Origin.SIZES if any(isinstance(each, (torch.SymInt, torch.SymFloat)) for each in values) else _Origin(0)
    fixed = {recorded_node(tensor) for tensor in (*model.parameters(), *model.buffers())}
    waiting = [recorded_node(each) for each in values if isinstance(each, torch.Tensor)]
    seen = set[torch.fx.Node]()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if is_random or (node.op == "placeholder" and node not in fixed):
            return _Origin.DATA
        if "sym_" in str(node.target):
            found = _Origin.SIZES
        else:
            waiting.extend(node.all_input_nodes)
    return found


class _Function(NamedTuple):
    """A function, the class that has it, and its code; None if there is no class or no source."""

    owner: type | None
    function: Any  # a FunctionType, which mypy would take for a method
    tree: ast.AST | None


class _Code:
    """The functions that the forward of a model may call, by name, and the names of the values that it changes."""

    def __init__(self, model: torch.nn.Module, changed: Set[str]) -> None:
        self.model, self.changed = model, changed
        self.lines: dict[tuple[Hashable, ...], str | None] = {}  # those of places, see ``_line_of_state``
        self.parts = {path.rpartition(".")[2] for path, _ in model.named_modules()}
        found: dict[str, dict[FunctionType, type | None]] = {}
        for owner, name, value in _attributes(model):
            function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
            if isinstance(function, FunctionType) and not is_internal(function.__code__.co_filename):
                found.setdefault(name, {}).setdefault(function, owner)
        waiting, self.functions = ["forward", "__call__", _HOOK], dict[str, list[_Function]]()
        while waiting:
            if (name := waiting.pop()) not in self.functions:
                self.functions[name] = [
                    _Function(owner, each, syntax_tree(each)) for each, owner in found.get(name, {}).items()
                ]
                for _, function, _ in self.functions[name]:
                    names = names_in(function.__code__)
                    for each in names & function.__globals__.keys():
                        helper = function.__globals__[each]
                        if isinstance(helper, FunctionType) and not is_internal(helper.__code__.co_filename):
                            found.setdefault(each, {}).setdefault(helper, None)
                    waiting.extend(names & found.keys())


_HOOK = "(hook)"


def compares_identity(model: torch.nn.Module) -> bool:
    """Returns whether the forward may ask whether a value is True, False or a number, as in ``bool(x.any()) is True``.

    Strict mode answers no for each number that depends on data. Code without a source may ask it too.
    """
    codes = {getattr(inspect.unwrap(type(module).forward), "__code__", None) for module in model.modules()}
    if not all(code is not None and Path(code.co_filename).is_file() for code in codes):
        return True
    trees = [each.tree for each in itertools.chain.from_iterable(_Code(model, set()).functions.values())]
    compared = (
        (operation, other)
        for tree in trees
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Compare)
        for operation, other in zip(node.ops, node.comparators, strict=True)
    )
    return None in trees or any(
        isinstance(operation, (ast.Is, ast.IsNot)) and isinstance(getattr(other, "value", None), (bool, int, float))
        for operation, other in compared
    )


def _attributes(model: torch.nn.Module) -> Iterator[tuple[type | None, str, Any]]:
    """Yields the attributes of the modules, of the objects that they hold and of their classes, and the hooks."""
    kinds: dict[type, None] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            kinds[type(value)] = None
            yield None, name, value
        kinds[type(module)] = None
        yield from (
            (None, _HOOK, each) for each in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        )
    for base in {base: None for kind in kinds for base in kind.__mro__ if not is_library(base.__module__)}:
        yield from ((base, name, value) for name, value in vars(base).items())


def _line_of_state(code: _Code, place: Place, origin: _Origin) -> str | None:
    """Returns the first line that changes a value if a later call may read what is left; None if it cannot.

    The line is as in ``line_text``, after a space. It is empty if the line is not known.
    """
    module = dict(code.model.named_modules()).get(place.owner) if isinstance(place.owner, str) else None
    values = vars(module) if module is not None else {}
    plain = {key: value for key, value in values.items() if isinstance(value, (bool, int, str)) or value is None}
    fixed = {key: value for key, value in plain.items() if key not in code.changed}
    key = place.name, place.kind, origin, frozenset(fixed.items())
    if key not in code.lines:  # equal layers have equal lines
        reads, writes, _ = _Reader(code, place, origin, fixed).effect_of_all()
        line = next(iter(writes or reads), ("", 0))
        code.lines[key] = None if not reads else f" {line_text(*line)}" if line[1] else ""
    return code.lines[key]


_Call = tuple[tuple[FunctionType, ...], frozenset[str]]  # the functions, and what is written before
_Lines = dict[tuple[str, int], None]  # files and lines, each once, in the order of their first use


class _Effect(NamedTuple):
    """What calling functions does: the lines that read and write the value, and what is written for sure afterwards."""

    reads: _Lines
    writes: _Lines
    written: Set[str]


class _Reader:
    """Goes through functions in the order of their statements and collects the lines that may read a left value.

    The effect of a call depends on the functions and on what is written before it, so each such pair is read once. A
    call of a function that is being read, as in a recursion, has the effect of an earlier round, at first none; rounds
    follow until no effect changes.
    """

    def __init__(self, code: _Code, place: Place, origin: _Origin, fixed: Mapping[str, Any]) -> None:
        self.code, self.place, self.origin = code, place, origin
        # Conditions on these have one outcome. Everything else has no attribute of this name, so evaluating fails.
        self.fixed = SimpleNamespace(**fixed)
        self.written = set[str]()  # the expressions that are written for sure; an empty text is the whole value
        self.reads, self.writes, self.running = _Lines(), _Lines(), list[_Function]()
        self.effects, self.read_in_round = dict[_Call, _Effect](), set[_Call]()

    def effect_of_all(self) -> _Effect:
        """Returns the effect of all functions together, of which each call may be the first."""
        while True:
            self.read_in_round.clear()
            known, self.reads, self.writes = dict(self.effects), _Lines(), _Lines()
            for each in itertools.chain.from_iterable(self.code.functions.values()):
                if all(each.function not in functions for functions, _ in self.read_in_round):
                    self.written = set()
                    self.run([each])
            if self.effects == known:
                return _Effect(self.reads, self.writes, set())

    def run(self, functions: Iterable[_Function]) -> None:
        """Adds the effect of calling one of the functions."""
        functions = list(functions)
        call = tuple(each.function for each in functions), frozenset(self.written)
        if call not in self.read_in_round:
            self.read_in_round.add(call)
            reads, writes = self.reads, self.writes
            self.effects[call] = self.read(functions)
            self.reads, self.writes = reads, writes
        effect = self.effects.get(call, _Effect({}, {}, call[1]))
        self.reads |= effect.reads
        self.writes |= effect.writes
        self.written = set(effect.written)

    def read(self, functions: Iterable[_Function]) -> _Effect:
        """Goes through functions of one name; what all of them write is written afterwards."""
        self.reads, self.writes = _Lines(), _Lines()
        before, ends = self.written, []
        for each in functions:
            if each.tree is not None:
                self.written = set(before)
                self.running.append(each)
                body = getattr(each.tree, "body", [])
                nodes = body if isinstance(body, list) else [ast.Expr(body)]  # of a lambda
                self.visit(nodes, self.origin is _Origin.CONSTANTS, True)
                self.running.pop()
                ends.append(self.written)
            elif self.place.name in names_in(each.function.__code__):
                self.reads["", 0] = None
        return _Effect(self.reads, self.writes, set.intersection(*ends) if ends else before)

    def visit(self, nodes: Iterable[ast.AST], is_same: bool, is_sure: bool) -> None:
        """Goes through statements.

        Args:
            nodes: the statements.
            is_same: whether the value is the same if another call has computed it.
            is_sure: whether each call reaches the statements.
        """
        for node in nodes:
            outcome = self.outcome(node.test) if isinstance(node, ast.If) else None
            inner = [each for each in ast.iter_child_nodes(node) if isinstance(each, _BLOCKS)]
            if isinstance(node, ast.If) and outcome is not None:
                self.visit(node.body if outcome else node.orelse, is_same, is_sure)
                continue
            parts = [each for each in ast.iter_child_nodes(node) if each not in inner] if inner else [node]
            nodes_of_step = [each for part in parts for each in self.taken(part)]
            compared = self.origin is _Origin.SIZES and isinstance(node, ast.If) and self.compares(node.test)
            fills = isinstance(node, ast.If) and self.only_fills(node, is_same or compared)
            reads, before = fills and not (is_same or compared), dict(self.reads)
            self.step(node, nodes_of_step, is_same or compared, is_sure)
            if reads:
                self.reads = dict(before)
            self.visit(inner, is_same or compared, is_sure and isinstance(node, (ast.With, ast.For)))
            if fills and not reads:
                self.reads = before
                self.written |= {""} if compared or self.writes else set()

    def step(self, node: ast.AST, nodes: list[ast.AST], is_same: bool, is_sure: bool) -> None:
        """Reads one statement, or the head of a compound one."""
        line = (self.running[-1].function.__code__.co_filename, getattr(node, "lineno", 0))
        for each in nodes:
            if isinstance(each, ast.Call):
                self.call(each)
        if not (places := [each for each in nodes if self.is_place(each)]):
            return
        func = getattr(node.value, "func", None) if isinstance(node, ast.Expr) else None
        stores = [each for each in nodes if isinstance(getattr(each, "ctx", None), (ast.Store, ast.Del))]
        targets = [each for each in stores if self.names(each) and not isinstance(each, (ast.Tuple, ast.List))]
        is_update = isinstance(func, ast.Attribute) and bool(self.names(func.value))
        covered = {id(sub) for each in nodes if ast.unparse(each) in self.written for sub in ast.walk(each)}
        calls = [] if self.place.name in self.code.parts else [each for each in nodes if isinstance(each, ast.Call)]
        called = {id(each.func) for each in calls}  # a method, as in `x.cos()`
        stored = {id(sub) for each in targets for sub in ast.walk(each)}
        known = covered | called | stored
        read = [] if "" in self.written else [each for each in places if id(each) not in known]
        if targets or is_update:
            self.writes[line] = None
            if not read and not is_update and not isinstance(node, ast.AugAssign) and (is_same or is_sure):
                self.written |= {"" if self.is_place(each) else ast.unparse(each) for each in targets}
        elif read:
            self.reads[line] = None

    def call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        known = self.code.functions.get(name, [])
        is_local = isinstance(node.func, ast.Name) and name in self.running[-1].function.__code__.co_varnames
        if not known and (name in self.code.parts or is_local):  # of a module, whose forward may write the value
            known = self.code.functions["forward"]
        own = [each for each in known if each.owner in self.place.kind.__mro__][:1] or known
        self.run(own)

    def is_place(self, node: ast.AST) -> bool:
        name = self.place.name
        match node:
            case ast.Name(id=id):
                return id == name and id in self.running[-1].function.__globals__
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, key, *_]):
                return not isinstance(key, ast.Constant) or key.value == name
        return getattr(node, "attr", None) == name

    def names(self, node: ast.AST) -> bool:
        return any(map(self.is_place, ast.walk(node)))

    def outcome(self, test: ast.expr) -> bool | None:
        """Returns the value of a condition on attributes of the module that do not change; None if it is not known."""
        owner = self.running[-1].owner
        if owner is None or not issubclass(self.place.kind, owner):
            return None
        try:
            code = compile(ast.Expression(test), "", "eval")
            return bool(eval(code, {"__builtins__": {}, "self": self.fixed}))
        except (NameError, AttributeError, TypeError, ValueError, LookupError, ArithmeticError):
            return None

    def taken(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the nodes of an expression, without the branch that is not taken."""
        outcome = self.outcome(node.test) if isinstance(node, ast.IfExp) else None
        children = ast.iter_child_nodes(node) if outcome is None else [node.body if outcome else node.orelse]  # type: ignore[attr-defined]
        yield node
        for each in children:
            yield from self.taken(each)

    def compares(self, test: ast.expr) -> bool:
        """Returns whether a condition compares a value that changes, which is more than asking whether there is one."""
        inner = list(ast.walk(test))
        is_compared = any(
            isinstance(each, ast.Compare) and not isinstance(each.ops[0], (ast.Is, ast.IsNot)) for each in inner
        )
        return is_compared and any(getattr(each, "attr", None) in self.code.changed for each in inner)

    def only_fills(self, node: ast.If, is_same: bool) -> bool:
        """Returns whether the branches of a condition change nothing but values that are compared, too."""
        if not self.names(node.test):
            return False
        tree: Any = self.running[-1].tree
        inside = {id(each) for each in ast.walk(node)}
        outside = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and id(each) not in inside}
        for each in ast.walk(node) if is_same else ():
            if isinstance(each, ast.Assign) and self.names(each):  # another name of the value
                outside -= {part.id for part in (*each.targets, each.value) if isinstance(part, ast.Name)}
        return all(
            self.is_harmless(each, outside, is_same) for part in (*node.body, *node.orelse) for each in ast.walk(part)
        )

    def is_harmless(self, node: ast.AST, outside: Set[str], is_same: bool, callers: Set[str] = frozenset()) -> bool:
        """Returns whether a node in a branch stops nothing and changes only local names and compared values.

        ``callers`` are the names of the functions around the node. A call of one of them adds nothing to their bodies.
        """
        names = {getattr(each, "attr", getattr(each, "id", None)) for each in ast.walk(node)}
        match node:
            case ast.Return(value=ast.Name(id=id)):
                return is_same and id not in outside
            case ast.Return():
                return is_same and self.names(node)
            case ast.Raise() | ast.Break() | ast.Continue():
                return False
            case ast.Name(id=id, ctx=ast.Store()):
                return id not in outside
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                return bool(names & self.code.changed)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr) as func)) if attr not in callers:
                known = self.code.functions.get(attr, [])
                parts = [each for _, _, tree in known if tree is not None for each in ast.walk(tree)]
                root = {each.id for each in ast.walk(func) if isinstance(each, ast.Name)}
                within = callers | {attr}
                inner = all(
                    isinstance(each, ast.Return) or self.is_harmless(each, set(), is_same, within) for each in parts
                )
                return (
                    inner
                    if parts
                    else bool(root & self.running[-1].function.__globals__.keys() or names & self.code.changed)
                )
        return True


_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
