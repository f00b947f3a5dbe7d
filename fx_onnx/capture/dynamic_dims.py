"""What became of the dims that were asked to be dynamic: their names, those that came out static, those with a limit.

torch.export captures for one example. Where the forward, or torch itself, asks something of a symbolic size, the answer
for the example is kept as a guard; with sizes for which the answer is another, the captured program is wrong.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from fx_onnx.capture.request import Request, TensorInput
from fx_onnx.core.torch_private import Mod, guard_location, guard_text, pytree, symbol_of_source, symbolic_expression


@dataclass(frozen=True)
class Specialized:
    """A dim that was asked to be dynamic and came out static.

    Attributes:
        input: the graph input's name: the user's, or torch's.
        axis: of the input's shape.
        name: the user's name for the dim, if it has one.
        size: what it was fixed to.
        reason: a clause that says what fixed it.
    """

    input: str
    axis: int
    name: str | None
    size: int
    reason: str

    def __str__(self) -> str:
        called = f" ({self.name!r})" if self.name else ""
        return f"Axis {self.axis}{called} of input {self.input!r} is static with size {self.size}: {self.reason}."


@dataclass(frozen=True)
class Limit:
    """A condition on dims asked to be dynamic, outside of which the captured program computes something else.

    Attributes:
        condition: over the dims' names, as in Python.
        place: ` (file:line in function)`, or nothing where torch itself asks.
        number: whether the forward made a plain number of a size, which is now a constant.
    """

    condition: str
    place: str
    number: bool

    def __str__(self) -> str:
        cause = "makes a plain number of a size" if self.number else "fails or takes another way for other sizes"
        return f"The exported model is right only where {self.condition}, as the code {cause}{self.place}."


@dataclass(frozen=True)
class Fixed:
    """How much a capture fixes of what was asked to be dynamic.

    Attributes:
        count: of dims that came out static, and of limits.
        by_example: whether a part of the example that has size 0 or 1 may be to blame.
        by_numbers: whether ``int()`` of a symbolic number is.
    """

    count: int
    by_example: bool
    by_numbers: bool


@dataclass(frozen=True)
class InputTensor:
    """A tensor among the graph's inputs: its name, what was asked of it, and its fake value."""

    name: str
    asked: TensorInput
    value: torch.Tensor

    def dim(self, axis: int) -> Any:
        """The size: an int, or a sympy expression. A dim that torch fixed late is a SymInt of a constant."""
        size: Any = self.value.shape[axis]
        if isinstance(size, int):
            return size
        expression = symbolic_expression(size)
        return int(expression) if expression.is_number else expression


def input_tensors(request: Request, program: ExportedProgram) -> list[InputTensor]:
    """The tensors among the graph's inputs, in order."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    inputs = [nodes[arg.name] for arg in specs if not isinstance(arg, ConstantArgument)]
    names = [*request.input_names, *(node.name for node in inputs[len(request.input_names) :])]
    values = [(name, node.meta["val"]) for name, node in zip(names, inputs, strict=True)]
    tensors = [(name, value) for name, value in values if isinstance(value, torch.Tensor)]
    return [InputTensor(name, asked, value) for (name, value), asked in zip(tensors, request.inputs, strict=True)]


def symbol_names(tensors: list[InputTensor]) -> tuple[dict[str, str], list[str]]:
    """The users' names by expression, the first where one has two, and a sentence for each name that lost."""
    names: dict[str, str] = {}
    clashes: dict[tuple[str, str], str] = {}
    for tensor in tensors:
        for axis, name in tensor.asked.axes.items():
            dim = tensor.dim(axis)
            if name is None or isinstance(dim, int):
                continue
            kept = names.setdefault(str(dim), name)
            if kept != name:
                clashes[kept, name] = f"The model makes the dims {kept!r} and {name!r} equal; both are called {kept!r}."
    return names, list(clashes.values())


def specialized(tensors: list[InputTensor]) -> Iterator[Specialized]:
    """The dims asked to be dynamic that came out static."""
    for tensor in tensors:
        for axis, name in tensor.asked.axes.items():
            size = tensor.dim(axis)
            if isinstance(size, int):
                yield Specialized(tensor.name, axis, name, size, _reason(tensor, axis, size))


def _reason(tensor: InputTensor, axis: int, size: int) -> str:
    """What fixed a dim, or one that must be equal to it, from the guard that torch's shape environment keeps."""
    shape_env = getattr(getattr(tensor.value, "fake_mode", None), "shape_env", None)
    parameter, bracket, rest = tensor.asked.path.partition("[")
    source = f"L[{parameter!r}]{bracket}{rest}.size()[{axis}]"
    guards = [g for g in getattr(shape_env, "guards", ()) if g.expr.func.__name__ == "Equality"]
    equal = {symbol_of_source(shape_env, source)}
    for guard in guards:
        if all(side.is_Symbol for side in guard.expr.args) and equal.intersection(guard.expr.args):
            equal.update(guard.expr.args)
    for guard in sorted(guards, key=lambda guard: not any(side.is_number for side in guard.expr.args)):
        symbols = guard.expr.free_symbols
        if symbols & equal and not all(side.is_Symbol for side in guard.expr.args):
            condition = " == ".join(map(str, guard.expr.args))
            for symbol in symbols & equal:
                condition = condition.replace(str(symbol), f"shape[{axis}]")
            return f"the model needs {condition} {_place(guard)}"
    if size in (0, 1):
        return f"torch.export fixes a dim whose example size is {size}, and the model does not run with another"
    return f"the model's code fixes it to {size}"


def _place(guard: Any) -> str:
    """``(file:line in function)``: where a guard was asked for; the file from where packages lie, or else in full."""
    frame, text = guard_location(guard), guard_text(guard)
    if frame is None or text is not None:
        return text or ""
    path, packages = Path(frame.filename), Path(sysconfig.get_path("purelib"))
    shown = path.relative_to(packages) if path.is_relative_to(packages) else path
    return f"({shown}:{frame.lineno} in {frame.name})"


# --- limits -----------------------------------------------------------------------------------------------------------

_SIZES = [
    *range(2, 34), 48, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 512, 513, 1000, 1024, 2048, 4096, 65536,
]  # fmt: skip
_FEW_SIZES = [2, 3, 4, 5, 7, 8, 16, 33, 100, 513, 4096]  # for conditions on two dims
_PYTHON = {"TruncToInt": "int", "FloorToInt": "floor", "CeilToInt": "ceil", "ToFloat": "float", "RoundToInt": "round"}
_TORCH = Path(torch.__file__).parent
_OF_SLICES = "_compute_slice_index"  # torch's function that asks where a slice ends; beyond the size it is cut off


def limits(request: Request, program: ExportedProgram, tensors: list[InputTensor]) -> list[Limit]:
    """What the captured program assumes of the dims asked to be dynamic, beyond what was asked.

    That a size is neither 0 nor 1 is assumed by torch everywhere and does not count; nor do preconditions, such as the
    equality of two sizes that are added.
    """
    shape_env = next((env for tensor in tensors if (env := _shape_env(tensor.value)) is not None), None)
    names = {**_number_names(program), **_dim_names(tensors)}
    found: dict[str, Limit] = {}
    for guard in getattr(shape_env, "guards", ()):
        condition = shape_env.replace(guard.expr)  # type: ignore[union-attr]
        symbols = sorted(condition.free_symbols, key=str)
        if isinstance(condition, sympy.core.relational.Relational) and symbols and names.keys() >= set(symbols):
            limit = _limit(condition, symbols, guard, names, _asked_ranges(request), program)
            if limit is not None:
                found.setdefault(limit.condition, limit)
    return list(found.values())


def fixed(request: Request, program: ExportedProgram) -> Fixed:
    """What the captured program fixes."""
    tensors = input_tensors(request, program)
    static, limited = list(specialized(tensors)), limits(request, program, tensors)
    guards = [guard.expr for tensor in tensors for guard in getattr(_shape_env(tensor.value), "guards", ())]
    parts = [g.args[0] for g in guards if isinstance(g, sympy.Eq) and g.args[1] in (0, 1)]
    return Fixed(
        count=len(static) + len(limited),
        by_example=bool(static or limited) and not all(isinstance(part, sympy.Symbol) for part in parts),
        by_numbers=any(limit.number and "int(" in limit.condition for limit in limited),
    )


def holds_for_example(request: Request, program: ExportedProgram) -> bool:
    """Whether a program captured from another example takes the way that the request's own takes through the code.

    So it does if every guard is true of the example's sizes, but for those by which torch assumes that a size is
    neither 0 nor 1.
    """
    tensors = input_tensors(request, program)
    own = [leaf for leaf in pytree.tree_leaves((request.args, request.kwargs)) if isinstance(leaf, torch.Tensor)]
    sizes: dict[Any, sympy.Integer] = {}
    for tensor, example in zip(tensors, own, strict=True):
        for axis, size in enumerate(example.shape):
            dim = tensor.dim(axis)
            if isinstance(dim, sympy.Symbol):
                sizes[dim] = sympy.Integer(size)
            elif isinstance(dim, int) and dim != size:
                return False
    for shape_env in {id(env): env for tensor in tensors if (env := _shape_env(tensor.value)) is not None}.values():
        for guard in shape_env.guards:
            condition = shape_env.replace(guard.expr)
            if (
                _is_from_torch(guard)
                and isinstance(condition, sympy.Ne)
                and condition.args[1] in (0, 1)
                and not condition.has(Mod)
            ):
                continue
            if _fails(condition, list(sizes), list(sizes.values())):
                return False
    return True


def _is_from_torch(guard: Any) -> bool:
    """Returns whether torch's own code, not the user's, made torch record the guard."""
    location = guard_location(guard)
    return location is not None and Path(location.filename).is_relative_to(_TORCH)


def _shape_env(value: torch.Tensor) -> Any:
    return getattr(getattr(value, "fake_mode", None), "shape_env", None)


def _dim_names(tensors: list[InputTensor]) -> dict[sympy.Symbol, str]:
    """The users' names of symbols, or where one is found, for those that were asked for."""
    names: dict[sympy.Symbol, str] = {}
    for tensor in tensors:
        for axis, name in tensor.asked.axes.items():
            dim = tensor.dim(axis)
            if isinstance(dim, sympy.Symbol):
                names.setdefault(dim, name or f"{tensor.name}.shape[{axis}]")
    return names


def _number_names(program: ExportedProgram) -> dict[sympy.Symbol, str]:
    """The names of whole numbers among the graph's inputs, such as the counts of tokens that a cache keeps."""
    numbers = [node for node in program.graph.nodes if node.op == "placeholder"]
    values = [(node.meta.get("val"), node.name) for node in numbers]
    return {symbolic_expression(value): name for value, name in values if isinstance(value, torch.SymInt)}


def _asked_ranges(request: Request) -> dict[str, tuple[int, Any]]:
    """The ranges of Dim objects, by name."""
    given = pytree.tree_leaves(request.dynamic_shapes, is_leaf=lambda leaf: isinstance(leaf, Dim))
    return {dim.__name__: (dim.min, dim.max) for dim in given if isinstance(dim, Dim) and hasattr(dim, "min")}


def _limit(
    condition: Any,
    symbols: list[sympy.Symbol],
    guard: Any,
    names: dict[sympy.Symbol, str],
    ranges: dict[str, tuple[int, Any]],
    program: ExportedProgram,
) -> Limit | None:
    """The limit that a guard is; None where it excludes nothing that was asked for."""
    own = not _is_from_torch(guard)
    equation = isinstance(condition, sympy.Eq) and any(side.is_number for side in condition.args)
    number = equation and (own or _is_of_python(condition))
    one = equation and condition.args[1] in (0, 1) and not condition.has(Mod)  # of a part of the example
    location = guard_location(guard)
    cut = location is not None and location.name == _OF_SLICES
    bound = len(symbols) == 1 and not isinstance(condition, (sympy.Eq, sympy.Ne))
    if not (own or number or one or cut or bound):
        return None
    allowed = [_allowed(symbol, names, ranges, len(symbols)) for symbol in symbols]
    excluded = [sizes for sizes in product(*allowed) if _fails(condition, symbols, sizes)]
    if not excluded or (not own and not equation and tuple(sizes[-1] for sizes in allowed) not in excluded):
        return None
    place = f" {_place(guard)}" if own else ""
    return Limit(_text(condition, symbols, names, program), place, number)


def _is_of_python(condition: Any) -> bool:
    """Whether a float of a size, or a whole number of that, takes part."""
    return any(part.func.__name__ in _PYTHON for part in condition.atoms(sympy.Function))


def _allowed(
    symbol: sympy.Symbol, names: dict[sympy.Symbol, str], ranges: dict[str, tuple[int, Any]], count: int
) -> list[sympy.Integer]:
    """Sizes to try, within the range that was asked for."""
    low, high = ranges.get(names[symbol], (2, max(_SIZES)))
    return [sympy.Integer(size) for size in (_SIZES if count == 1 else _FEW_SIZES) if low <= size <= high]


def _fails(condition: Any, symbols: Sequence[sympy.Symbol], sizes: Sequence[sympy.Integer]) -> bool:
    try:
        return condition.xreplace(dict(zip(symbols, sizes, strict=True))) is sympy.false
    except ZeroDivisionError:  # sizes for which the condition says nothing
        return False


def _text(condition: Any, symbols: list[sympy.Symbol], names: dict[sympy.Symbol, str], program: ExportedProgram) -> str:
    """The condition in Python over the dims' names; a plain bound where it is one."""
    span = program.range_constraints.get(symbols[0])
    if len(symbols) == 1 and span is not None and not isinstance(condition, (sympy.Eq, sympy.Ne)):
        if not _fails(condition, symbols, [sympy.Integer(max(_SIZES))]):
            return f"{names[symbols[0]]} >= {span.lower}"
        if span.upper.is_Integer:
            return f"{names[symbols[0]]} <= {span.upper}"
    condition = _without_minus(condition)
    left, right = (sympy.sstr(side, full_prec=False) for side in condition.args)
    text = re.sub(r"Mod\((\w+), (\w+)\)", r"\1 % \2", f"{left} {condition.rel_op} {right}")
    for name, python in _PYTHON.items():
        text = text.replace(f"{name}(", f"{python}(")
    for symbol in symbols:
        text = text.replace(str(symbol), names[symbol])
    return text


def _without_minus(condition: Any) -> Any:
    """The comparison with what an inequality subtracts on one side added on the other, and a number on the right."""
    if isinstance(condition, (sympy.Eq, sympy.Ne)):
        return condition
    terms = sympy.Add.make_args(condition.args[0] - condition.args[1])
    subtracted = [term for term in terms if term.could_extract_minus_sign()]
    left, right = sympy.Add(*(t for t in terms if t not in subtracted)), sympy.Add(*(-t for t in subtracted))
    found = condition.func(left, right, evaluate=False)
    return found.reversed if left.is_number else found
