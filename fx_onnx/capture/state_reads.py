"""Tells from the code of a model whether a call may read a value that an earlier call has left; nothing runs.

A value that the code only writes, or reads only to compute its own new value, as in ``self.calls += 1``, changes no
result. Neither does one that each call writes before it reads it. A value that is built once, as in
``if self.table is None: self.table = torch.arange(8)``, is the same in each call if it depends on no input, and if the
condition decides about nothing else.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from enum import IntEnum
from types import FunctionType
from typing import Any, NamedTuple

import torch

from fx_onnx.capture.python_values import Place, names_in
from fx_onnx.core.source_lines import is_internal, is_library, line_text
from fx_onnx.core.torch_private import recorded_node

__all__ = ["Code", "Origin", "line_of_state", "origin_of"]


class Origin(IntEnum):
    """From what a new value is computed: from constants and weights, from sizes too, or from data."""

    CONSTANTS = 0
    SIZES = 1
    DATA = 2


def origin_of(model: torch.nn.Module, values: Iterable[Any]) -> Origin:
    """Returns from what values are computed, by the graph that is being recorded."""
    values = list(values)
    found = Origin.SIZES if any(isinstance(each, (torch.SymInt, torch.SymFloat)) for each in values) else Origin(0)
    fixed = {recorded_node(tensor) for tensor in (*model.parameters(), *model.buffers())}
    waiting = [recorded_node(each) for each in values if isinstance(each, torch.Tensor)]
    seen = {None}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if is_random or (node.op == "placeholder" and node not in fixed):
            return Origin.DATA
        if "sym_" in str(node.target):
            found = Origin.SIZES
        else:
            waiting.extend(node.all_input_nodes)
    return found


class _Function(NamedTuple):
    """A function of the model: its class or None, itself, and its code or None."""

    owner: type | None
    function: FunctionType
    tree: ast.AST | None


class Code:
    """The functions that the forward of a model may call, by name, and the names of the values that it changes."""

    def __init__(self, model: torch.nn.Module, changed: Set[str]) -> None:
        self.model, self.changed = model, changed
        found: dict[str, dict[Any, type | None]] = {}
        for owner, name, function in _functions(model):
            found.setdefault(name, {}).setdefault(function, owner)
        waiting, self.functions = ["forward", "__call__", *_hooks(model)], dict[str, list[_Function]]()
        while waiting:
            name = waiting.pop()
            if name not in self.functions:
                self.functions[name] = [_Function(o, f, _tree(f)) for f, o in found.get(name, {}).items()]
                for _, function, _ in self.functions[name]:
                    names = names_in(function.__code__)
                    waiting.extend(names & found.keys())
                    for each in names & function.__globals__.keys() - found.keys():
                        helper = inspect.unwrap(function.__globals__[each])
                        if _is_own(helper):
                            found[each] = {helper: None}
                            waiting.append(each)


def _functions(model: torch.nn.Module) -> Iterator[tuple[type | None, str, FunctionType]]:
    """Yields the functions of the classes of modules and of the objects that they hold, with their classes."""
    kinds: dict[type, None] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            kinds[type(value)] = None
            if _is_own(function := inspect.unwrap(getattr(value, "__func__", value))):
                yield None, name, function
        kinds[type(module)] = None
    for base in {base: None for kind in kinds for base in kind.__mro__ if not is_library(base.__module__)}:
        for name, value in vars(base).items():
            function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
            if _is_own(function):
                yield base, name, function


def _hooks(model: torch.nn.Module) -> Iterator[str]:
    for module in model.modules():
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values()):
            yield getattr(hook, "__name__", "__call__")


def _is_own(function: Any) -> bool:
    return isinstance(function, FunctionType) and not is_internal(function.__code__.co_filename)


def _tree(function: FunctionType) -> ast.AST | None:
    """Returns the code of a function; None if it has no source."""
    try:
        module = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return None
    ast.increment_lineno(module, function.__code__.co_firstlineno - 1)
    return next((node for node in ast.walk(module) if isinstance(node, (ast.FunctionDef, ast.Lambda))), None)


def line_of_state(code: Code, place: Place, origin: Origin) -> str | None:
    """Returns the first line that changes a value if a later call may read what is left; None if it cannot.

    The line is as in ``line_text``, after a space. It is empty if the line is not known.
    """
    reader = _Reader(code, place, origin)
    for functions in [*code.functions.values()]:
        for each in functions:
            if each.function not in reader.visited:
                reader.written = set()
                reader.run([each])
    if not reader.reads:
        return None
    file, line = next(iter(reader.writes or reader.reads))
    return f" {line_text(file, line)}" if file else ""


_Paths = set[str] | None
"""The parts of a value that are written for sure, such as ``['rows']``; None where the code returns before."""


class _Reader(ast.NodeVisitor):
    """Walks through functions in the order of evaluation and collects the lines that may read what a call has left."""

    def __init__(self, code: Code, place: Place, origin: Origin) -> None:
        self.code, self.place, self.origin = code, place, origin
        self.visited: dict[FunctionType, None] = {}
        self.active: list[_Function] = []
        self.written: _Paths = set()
        self.exits: list[_Paths] = []
        self.is_own = self.is_derived = self.is_compared = False
        self.reads: list[tuple[str, int]] = []
        self.writes: list[tuple[str, int]] = []

    def run(self, functions: list[_Function]) -> None:
        """Walks through functions of one name; what all of them write is written afterwards."""
        before, ends = self.written, list[_Paths]()
        for each in functions:
            if each in self.active:
                continue
            self.visited[each.function] = None
            if each.tree is None:
                if self.place.name in names_in(each.function.__code__):
                    self.reads.append(("", 0))
                continue
            self.active.append(each)
            exits, self.exits, self.written = self.exits, [], before
            self.visit_all(each.tree.body)  # type: ignore[attr-defined]
            end = self.written
            for other in self.exits:
                end = self.merged(end, other)
            ends.append(end)
            self.exits = exits
            self.active.pop()
        self.written = before
        if ends:
            self.written = _common(ends, before)

    def visit_all(self, nodes: Any) -> None:
        for node in nodes if isinstance(nodes, list) else [nodes]:
            self.visit(node)

    def merged(self, first: _Paths, second: _Paths) -> _Paths:
        """Returns what is written after two branches. A value from constants is the same if the other one was taken."""
        if first is None or second is None:
            return second if first is None else first
        return first | second if self.is_same else first & second

    @property
    def is_same(self) -> bool:
        """Returns whether the value is the same if another call has computed it."""
        return self.origin is Origin.CONSTANTS or (self.origin is Origin.SIZES and self.is_compared)

    def path(self, node: ast.AST) -> str | None:
        """Returns the part of the value that an expression is, such as ``['rows']``; None if it is something else."""
        root = node
        while not (is_place := self.is_place(root)) and isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        return ast.unparse(node)[len(ast.unparse(root)) :] if is_place else None

    def is_place(self, node: ast.AST) -> bool:
        name = self.place.name
        match node:
            case ast.Attribute(attr=attr):
                return attr == name
            case ast.Name(id=id):
                return id == name and id in self.active[-1].function.__globals__
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, key, *_]):
                return not isinstance(key, ast.Constant) or key.value == name
        return False

    # --- expressions

    def visit(self, node: ast.AST) -> None:
        path = self.path(node)
        if path is None:
            super().visit(node)
        elif self.written is not None and not any(_is_part(path, each) for each in self.written):
            self.is_derived |= self.is_own
            if not self.is_own:
                self.reads.append(self.line(node))

    def line(self, node: ast.AST) -> tuple[str, int]:
        return inspect.getsourcefile(self.active[-1].function) or "", node.lineno  # type: ignore[attr-defined]

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        known = self.code.functions.get(name, [])
        is_module = name in {path.rpartition(".")[2] for path, _ in self.code.model.named_modules()}
        is_local = isinstance(node.func, ast.Name) and name in self.active[-1].function.__code__.co_varnames
        if not known and (is_module or is_local):  # of a module, whose forward may write the value
            known = self.code.functions["forward"]
        own = [each for each in known if each.owner in self.place.kind.__mro__]
        self.run(own[:1] or known)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.branch(node)

    # --- statements

    def visit_If(self, node: ast.If) -> None:
        self.branch(node)

    def branch(self, node: ast.If | ast.IfExp) -> None:
        count = len(self.reads)
        self.visit(node.test)
        tested, outcome = len(self.reads), self.outcome(node.test)
        before, was_compared = self.written, self.is_compared
        inner = [each for each in ast.walk(node.test) if isinstance(each, ast.Compare)]
        names = {each.attr for each in ast.walk(node.test) if isinstance(each, ast.Attribute)}
        if names & self.code.changed and any(not isinstance(each.ops[0], (ast.Is, ast.IsNot)) for each in inner):
            self.is_compared = True
        ends = []
        for taken, nodes in ((True, node.body), (False, node.orelse)):
            self.written = before
            if outcome in (taken, None):
                self.visit_all(nodes)
                ends.append(self.written)
        self.written = self.merged(ends[0], ends[-1])
        if tested > count and isinstance(node, ast.If) and self.only_fills(node):
            del self.reads[count : None if self.is_same else tested]
            if self.is_same and self.written is not None and self.written - (before or set()):
                self.written = self.written | {""}
        self.is_compared |= was_compared

    def outcome(self, test: ast.AST) -> bool | None:
        """Returns the value of a condition on attributes of the module that are plain bools and do not change."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return None if (found := self.outcome(operand)) is None else not found
            case ast.BoolOp(op=op, values=values):
                decides = isinstance(op, ast.Or)
                outcomes = {self.outcome(each) for each in values}
                return decides if decides in outcomes else None if None in outcomes else not decides
            case ast.Attribute(value=ast.Name(), attr=name) if name not in self.code.changed:
                modules = {path: module for path, module in self.code.model.named_modules()}
                value = vars(modules[self.place.owner]).get(name) if self.place.owner in modules else None
                is_own = self.active[-1].owner in self.place.kind.__mro__
                return value if is_own and isinstance(value, bool) else None
        return None

    def visit_Assign(self, node: ast.Assign) -> None:
        self.assign(node, node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.assign(node, [node.target], node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.assign(node, [node.target], node.value, [node.target])

    def assign(self, node: ast.AST, targets: list[ast.expr], *values: Any) -> None:
        flat = [each for target in targets for each in _flat(target)]
        paths = [path for each in flat if (path := self.path(each)) is not None]
        self.is_own, self.is_derived = bool(paths), isinstance(node, ast.AugAssign)
        self.visit_all([each for each in values if isinstance(each, ast.AST)])
        self.is_own = False
        self.visit_all([each for each in flat if self.path(each) is None])
        if paths:
            self.writes.append(self.line(node))
            if not self.is_derived and self.written is not None:
                self.written = self.written | {*paths}

    def visit_Expr(self, node: ast.Expr) -> None:
        """Takes a call such as ``self.sizes.append(2)`` as a write."""
        func = getattr(node.value, "func", None)
        if isinstance(func, ast.Attribute) and self.path(func.value) is not None:
            self.assign(node, [], *node.value.args)  # type: ignore[attr-defined]
            self.writes.append(self.line(node))
        else:
            self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        self.generic_visit(node)
        self.exits.append(self.written)
        self.written = None

    def visit_Raise(self, node: ast.Raise) -> None:
        self.generic_visit(node)
        self.written = None

    # --- conditions

    def only_fills(self, node: ast.If) -> bool:
        """Returns whether the branches of a condition change nothing but values that are compared, too."""
        function = self.active[-1].tree or node
        outside = Counter(_loaded(function)) - Counter(_loaded(node))
        aliases = set()
        for each in ast.walk(node) if self.is_same else ():
            if isinstance(each, ast.Assign):
                around = [*each.targets, each.value]
                if any(self.path(part) is not None for part in around):
                    aliases |= {part.id for part in around if isinstance(part, ast.Name)}
        effects = (each for part in (*node.body, *node.orelse) for each in _effects(part))
        return all(self.is_harmless(each, outside, aliases) for each in effects)

    def is_harmless(self, effect: ast.AST, outside: Counter[str] | None, aliases: set[str]) -> bool:
        chain = [each for each in ast.walk(effect) if isinstance(each, (ast.Attribute, ast.Name))]
        names = [getattr(each, "attr", getattr(each, "id", "")) for each in chain]
        match effect:
            case ast.Return(value=value):
                is_alias = isinstance(value, ast.Name) and value.id in aliases
                return outside is None or is_alias or bool(value and self.is_same and self.path(value) is not None)
            case ast.Call(func=func):
                called = self.code.functions.get(getattr(func, "attr", getattr(func, "id", "")), [])
                trees = [each.tree for each in called if each.tree is not None]
                if trees:
                    return all(self.is_harmless(each, None, set()) for tree in trees for each in _effects(tree))
                root = func
                while isinstance(root, (ast.Attribute, ast.Subscript)):
                    root = root.value
                is_global = isinstance(root, ast.Name) and root.id in self.active[-1].function.__globals__
                return is_global or isinstance(func, ast.Name) or bool(self.code.changed & set(names))
            case ast.Name(id=id):
                return outside is None or id in aliases or not outside[id]
            case ast.Attribute() | ast.Subscript():
                return bool(self.code.changed & set(names)) or (isinstance(effect, ast.Subscript) and outside is None)
        return False


def _is_part(path: str, whole: str) -> bool:
    return path == whole or path.startswith((f"{whole}.", f"{whole}["))


def _common(ends: list[_Paths], before: _Paths) -> _Paths:
    """Returns what is written after each of several functions; nothing new if one does not return."""
    found = [end for end in ends if end is not None]
    return set.intersection(*found) if found else before


def _flat(target: ast.expr) -> list[ast.expr]:
    """Returns the targets of an assignment, those in a tuple too."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return [each for element in target.elts for each in _flat(element)]
    return [target.value if isinstance(target, ast.Starred) else target]


def _loaded(node: ast.AST) -> list[str]:
    """Returns the names that code reads."""
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]


def _effects(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what code may change or stop: targets of assignments, calls whose result is not used, returns."""
    for each in ast.walk(node):
        if isinstance(each, (ast.Return, ast.Raise, ast.Break, ast.Continue)) or _is_target(each):
            yield each
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            yield each.value


def _is_target(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)) and not isinstance(node, (ast.Tuple, ast.List))
