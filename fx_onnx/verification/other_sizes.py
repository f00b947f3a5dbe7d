"""Arguments of other sizes for the dynamic dims of a program, made from the values of given arguments.

A dim gets two other sizes: a larger and a smaller one, or two larger ones if it cannot be smaller. They lie in the
range of the dim, and all conditions that the export has told are true for them. All dims change at once, each by
another amount, so that a size that takes the place of another one is found too. Where the model refuses these sizes,
multiples and halves are tried, and then each dim alone. A size that a finding of the export excludes is tried too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsInt

import onnx_ir as ir
import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from fx_onnx.messages.arguments import is_dim_word
from fx_onnx.passes import matchers
from fx_onnx.program.input_binding import user_leaves
from fx_onnx.sizes.dim_table import SizeCondition
from fx_onnx.sizes.symbolic_sizes import size_of
from fx_onnx.sizes.trial_sizes import arguments_of_shapes, is_false, resized

__all__ = ["CacheLimit", "Resizer", "Sizes", "cache_limits"]

Sizes = Mapping[sympy.Symbol, int]
"""The size of each symbol of the program."""

_STEPS = 64
"""How many sizes above or below the given one are tried until all guards are true."""
_LARGEST = 8192
"""The largest size that is tried because a finding names it."""


@dataclass(frozen=True)
class _Dim:
    """One symbol of the user's inputs, with its label, the given size, and the range of its sizes."""

    symbol: sympy.Symbol
    label: str
    size: int
    low: int
    high: int


class Resizer:
    """Makes arguments of other sizes.

    Attributes:
        sizes: the sizes of the given arguments.
        reason: why there are no other sizes, as a sentence; empty if there are some.
    """

    def __init__(
        self,
        exported: ExportedProgram,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        inputs: Sequence[ir.Value] = (),
        limits: Sequence[CacheLimit] = (),
        conditions: Sequence[SizeCondition] | None = None,
    ) -> None:
        """Reads the sizes of the arguments. The dims have the names that they have in the inputs of the ONNX model.

        ``conditions`` are those that the export has told; None takes the guards of the capture for them. The export may
        have dropped a guard, so its sizes are tried.
        """
        self._spec = exported.call_spec.in_spec
        self._leaves = user_leaves(exported, args, kwargs)
        self._shapes, shape_env = _symbolic_shapes(exported)
        self.sizes: dict[sympy.Symbol, int] = {}
        labels: dict[sympy.Symbol, str] = {}
        self._limits = limits
        names = list(_input_dims(self._shapes, inputs))
        # A name that torch made up, such as s17, is none of the user's.
        named = {dim: name for dim, name in reversed(names) if is_dim_word(name) and name != str(dim)}
        for (name, dims), leaf in zip(self._shapes, self._leaves, strict=True):
            given = leaf.shape if isinstance(leaf, torch.Tensor) else [leaf]
            for axis, (dim, size) in enumerate(zip(dims, given, strict=False)):
                if isinstance(dim, sympy.Symbol) and isinstance(size, SupportsInt):  # the program refuses another leaf
                    self.sizes.setdefault(dim, int(size))
                    own = f"{name}.shape[{axis}]" if isinstance(leaf, torch.Tensor) else name
                    labels.setdefault(dim, named.get(dim, own))
        self._dims = [
            _Dim(symbol, labels[symbol], size, *_range(exported.range_constraints.get(symbol)))
            for symbol, size in self.sizes.items()
        ]
        # A dim that is an expression of others follows from them.
        self._names = {name: symbol for symbol, name in (*names, *labels.items()) if symbol in self.sizes}
        self._conditions = [condition for condition in conditions or () if self._names.keys() >= set(condition.dims)]
        guards = shape_env.guards if shape_env is not None and conditions is None else ()
        self._guards = [shape_env.replace(guard.expr) for guard in guards]
        self.reason = self._refusal()

    def _refusal(self) -> str:
        dims = {dim for _, shape in self._shapes for dim in shape if not isinstance(dim, int)}
        unknown = {symbol for dim in dims for symbol in dim.free_symbols} - self.sizes.keys()
        if unknown:
            return "No other sizes are checked, because the arguments do not determine the size of every dim."
        return ""

    def rounds(self) -> Iterator[list[Sizes]]:
        """Yields, for the larger and for the smaller size, the sizes to try until the model takes one of them."""
        if self.reason:
            return
        for larger in (True, False):
            joint = [self._joint(larger, whole) for whole in (False, True)]
            candidates = [sizes for sizes in joint if sizes is not None and sizes != self.sizes]
            if candidates:
                yield [sizes for n, sizes in enumerate(candidates) if sizes not in candidates[:n]]

    def excluded(self) -> Iterator[tuple[str, Sizes]]:
        """Yields each finding with sizes for which it is false, close to those of the arguments.

        All bounds are true for them, and so are all other findings where that is possible. A finding that is false for
        the sizes of an earlier one is left out.
        """
        tried: list[dict[str, int]] = []
        bounds, findings = (
            [condition for condition in self._conditions if condition.kind == kind] for kind in ("bound", "finding")
        )
        given = self._named(self.sizes)
        for finding in findings if not self.reason else ():
            if any(not finding.holds(sizes) for sizes in tried):
                continue
            candidates = [
                sizes
                for sizes in _around(given, finding)
                if not finding.holds(sizes) and all(bound.holds(sizes) for bound in bounds) and self._runs(sizes)
            ]
            if candidates:
                best = min(candidates, key=lambda sizes: sum(not other.holds(sizes) for other in findings))
                tried.append(best)
                yield finding.condition, {self._names[name]: size for name, size in best.items()}

    def _runs(self, sizes: Mapping[str, int]) -> bool:
        """Returns whether arguments can have these sizes of named dims, and all kernels take them."""
        named = {self._names[name]: size for name, size in sizes.items()}
        return self._run(named) and self._possible(named)

    def single(self, sizes: Sizes) -> Iterator[Sizes]:
        """Yields sizes in which only one dim differs from the given arguments, and is as in ``sizes``."""
        changed = [symbol for symbol, size in sizes.items() if size != self.sizes[symbol]]
        for symbol in changed if len(changed) > 1 else ():
            alone = {**self.sizes, symbol: sizes[symbol]}
            if self._allowed(alone):
                yield alone

    def fitted(self, sizes: Sizes, first: int = 0) -> Sizes:
        """Returns the sizes of a call that all kernels take: the given sizes, or else sizes close to them.

        Where there are several, ``first`` chooses another one first. Without any, the result is the given sizes.
        """
        if self.reason or self._run(sizes):
            return sizes
        changes = [self._changed(sizes, choice) for choice in range(3)]
        order = changes[first % 3 :] + changes[: first % 3]
        return next((changed for changed in order if self._run(changed) and self._allowed(changed)), sizes)

    def _run(self, sizes: Sizes) -> bool:
        return all(limit.takes(self._named(sizes)) for limit in self._limits)

    def _named(self, sizes: Sizes) -> dict[str, int]:
        return {name: sizes[symbol] for name, symbol in self._names.items() if symbol in sizes}

    def _changed(self, sizes: Sizes, choice: int) -> Sizes:
        """Returns sizes with one of the changes that a limit proposes, and the number of all tokens that follows."""
        changed = dict(sizes)
        symbols = self._names
        for limit in self._limits:
            dim, size = limit.changes()[choice]
            if dim in symbols:
                changed[symbols[str(dim)]] = size
        for limit in self._limits:
            past, new = (
                dim if isinstance(dim, int) else changed.get(symbols.get(dim)) for dim in (limit.past, limit.sequence)
            )
            if limit.total in symbols and past is not None and new is not None:
                changed[symbols[str(limit.total)]] = past + new
        return changed

    def label(self, sizes: Sizes) -> str:
        """Returns sizes as text, for example ``batch=3, x.shape[1]=5``."""
        return ", ".join(f"{dim.label}={sizes[dim.symbol]}" for dim in self._dims)

    def arguments(self, sizes: Sizes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns arguments of these sizes: each axis repeats the given values, or is cut."""
        values = {symbol: sympy.Integer(size) for symbol, size in sizes.items()}
        shapes = [
            [dim if isinstance(dim, int) else int(dim.xreplace(values)) for dim in dims] for _, dims in self._shapes
        ]
        args, kwargs = arguments_of_shapes(self._leaves, self._spec, shapes, resized)
        return tuple(args), dict(kwargs)

    def _joint(self, larger: bool, whole: bool) -> dict[sympy.Symbol, int] | None:
        """Returns a new size for each dim that has one; None if the guards allow none.

        Args:
            larger: whether the sizes are larger than those of the arguments.
            whole: whether to try multiples and halves first, because models need such sizes for reasons that torch
                does not see.
        """
        sizes = dict(self.sizes)
        for index, dim in enumerate(self._dims):
            sizes[dim.symbol] = next(
                (s for s in _candidates(dim, larger, whole, index) if self._allowed({**sizes, dim.symbol: s})), dim.size
            )
        return sizes if self._allowed(sizes) else None

    def _allowed(self, sizes: Sizes) -> bool:
        """Returns whether the conditions are true for the sizes, and no dim that they determine is negative."""
        values = {symbol: sympy.Integer(size) for symbol, size in sizes.items()}
        holds = all(condition.holds(self._named(sizes)) for condition in self._conditions) and self._possible(sizes)
        return holds and not any(is_false(guard, values) for guard in self._guards)

    def _possible(self, sizes: Sizes) -> bool:
        """Returns whether every dim that the sizes determine is an integer that is not negative."""
        values = {symbol: sympy.Integer(size) for symbol, size in sizes.items()}
        dims = [dim.xreplace(values) for _, shape in self._shapes for dim in shape if not isinstance(dim, int)]
        return all(dim.is_Integer and dim >= 0 for dim in dims)


def _symbolic_shapes(exported: ExportedProgram) -> tuple[list[tuple[str, list[Any]]], Any]:
    """Returns the name and the dims of each leaf of the arguments, ints or sympy expressions, and torch's ShapeEnv.

    A symbolic number counts as a shape of one dim. Other leaves have no dims.
    """
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes if node.op == "placeholder"}
    shapes: list[tuple[str, list[Any]]] = []
    shape_env = None
    for spec in exported.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        value = None if isinstance(spec.arg, ConstantArgument) else values.get(spec.arg.name)
        sizes = value.shape if isinstance(value, torch.Tensor) else [value] if isinstance(value, torch.SymInt) else []
        shapes.append((spec.arg.name, [size_of(size) for size in sizes]))
        mode = getattr(value, "fake_mode", None)
        shape_env = shape_env or getattr(mode, "shape_env", None)
    return shapes, shape_env


def _input_dims(shapes: Sequence[tuple[str, Sequence[Any]]], inputs: Sequence[ir.Value]) -> Iterator[tuple[Any, str]]:
    """Yields each dim of the arguments with its name in the inputs of the ONNX model."""
    ranked = (value.shape for value in inputs if value.shape is not None and len(value.shape))
    for dims, shape in zip((dims for _, dims in shapes if dims), ranked, strict=False):
        for dim, size in zip(dims, shape, strict=False):
            if isinstance(size, ir.SymbolicDim) and size.value:
                yield dim, size.value


def _range(limits: Any) -> tuple[int, int]:
    """Returns the smallest size, at least 1, and the largest size of a dim."""
    if limits is None:
        return 2, 2**31
    upper = int(limits.upper) if getattr(limits.upper, "is_Integer", False) else 2**31
    return max(int(limits.lower), 1), upper


def _around(given: Mapping[str, int], finding: SizeCondition) -> Iterator[dict[str, int]]:
    """Yields sizes with another size of one dim of a finding: close to the given one, or to a number in the finding."""
    numbers = [int(number) + step for number in re.findall(r"\d+", finding.condition) for step in (0, 1, -1)]
    for name in finding.dims:
        near = (given[name] + sign * step for step in range(1, 9) for sign in (1, -1))
        yield from ({**given, name: size} for size in (*near, *numbers) if 1 <= size <= _LARGEST)


def _candidates(dim: _Dim, larger: bool, whole: bool, index: int) -> Iterator[int]:
    """Yields the sizes to try for a dim; dims at other places begin at other sizes."""
    first = 1 + index % 3
    if larger:
        near: Iterator[int] = (dim.size + step for step in range(first, first + _STEPS))
        multiples = iter([dim.size * 2, dim.size * 3])
    else:
        # Where no smaller size is allowed, a second larger one takes its place.
        smaller = (dim.size - step for step in range(first, min(first + _STEPS, dim.size)))
        near = itertools.chain(smaller, (dim.size + 3 + step for step in range(first, first + _STEPS)))
        multiples = iter([dim.size // 2, dim.size // 4, dim.low, dim.size * 4])
    order = itertools.chain(multiples, near) if whole else itertools.chain(near, multiples)
    return (size for size in order if dim.low <= size <= dim.high and size != dim.size)


# ---------------------------------------------------------------- calls that a kernel of ONNX Runtime refuses


class CacheLimit(NamedTuple):
    """The dims of GroupQueryAttention nodes, which are names or sizes, and the calls that the kernel takes.

    With a past, the batch or the number of new tokens is 1. The mask has a column for each token of past and sequence;
    a buffer of the past that is longer than all tokens does not count here, because PyTorch has none.
    """

    batch: int | str
    sequence: int | str
    past: int | str
    total: int | str

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Returns whether the kernel takes a call with these sizes of named dims."""
        batch, sequence, past, total = (dim if isinstance(dim, int) else sizes.get(dim) for dim in self)
        if batch is None or sequence is None or past is None:
            return True  # nothing is known
        return (batch == 1 or sequence == 1 or past == 0) and total in (None, past + sequence)

    def changes(self) -> tuple[tuple[int | str, int], ...]:
        """Returns the dims that make a call possible, each with its size."""
        return ((self.batch, 1), (self.past, 0), (self.sequence, 1))


def cache_limits(model: ir.Model) -> tuple[CacheLimit, ...]:
    """Returns the limits of the calls of a model, without repetitions."""
    return tuple(dict.fromkeys(_limits(model.graph)))


def _limits(graph: ir.Graph) -> Iterator[CacheLimit]:
    for node in graph:
        if node.op_type != "GroupQueryAttention" or len(node.inputs) < 7:
            continue
        query, past, total = matchers.dims(node.inputs[0]), matchers.dims(node.inputs[3]), _length(node.inputs[6])
        if query is not None and past is not None and total is not None:
            yield CacheLimit(query[0], query[1], past[2], total)


def _length(total: ir.Value | None) -> int | str | None:
    """Returns the dim that a scalar is computed from: Cast(Squeeze(Shape(mask)))."""
    squeezed = matchers.producer_of(getattr(matchers.producer_of(total, "Cast"), "inputs", (None,))[0], "Squeeze")
    shape = matchers.producer_of(squeezed.inputs[0], "Shape") if squeezed is not None else None
    sizes = matchers.dims(shape.inputs[0]) if shape is not None else None
    return None if sizes is None or len(sizes) != 2 else sizes[1]
