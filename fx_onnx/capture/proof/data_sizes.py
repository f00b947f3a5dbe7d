"""Decides for which sizes that depend on data a captured program is right, such as the length of a ``nonzero``.

torch takes such a size for one that is not 1: ``squeeze`` keeps the axis, and a comparison with another size makes both
equal. In eager mode, one selected row is an axis that ``squeeze`` removes, and that broadcasts. So the module and the
program run on tensors without values, with chosen numbers in place of these sizes. Where a size changes the shapes in
the program, and both still compute the same, the program gets a branch for this size; elsewhere it is a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sympy
import torch

from fx_onnx.capture.proof.graph_interpreter import squeezed_axes
from fx_onnx.capture.proof.paired_runs import Outcome, PairedRuns
from fx_onnx.capture.proof.size_proof import SizeProof
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.sizes.symbolic_sizes import expression, is_data_dependent
from fx_onnx.torch_internals.guard_private import as_made
from fx_onnx.torch_internals.torch_private import free_unbacked_symbols, statically_known_true

__all__ = ["DataSizes", "data_sizes"]

_USUAL = (3, 2, 4, 5, 8, 16, 33)
"""The sizes of which one is taken for a size like any other: all that the code does with the data must allow it."""
_LARGEST = 64  # up to where a size is looked for that makes an expression of it 0 or 1, as 3 makes `n - 2`
_MANY = 5  # the number of sizes from which on they are not tried one at a time


@dataclass(frozen=True)
class DataSizes:
    """What is known of the sizes of a program that depend on data.

    Attributes:
        branches: the sizes for which the program may compute other shapes and is right with them.
        findings: one sentence for each place where the program is or may be wrong for a size.
    """

    branches: tuple[int, ...] = ()
    findings: tuple[str, ...] = ()


def data_sizes(facts: SizeProof, runs: PairedRuns) -> DataSizes:
    """Returns what is known of the sizes that depend on data; runs the module and the program if there are any."""
    if not runs.data_sizes:
        return DataSizes()
    branches, findings = dict[int, None](), dict[str, None]()

    def outcome(chosen: Callable[[int], int]) -> Outcome:
        compared = runs.compare_for_data(facts.sizes.empty_arguments, chosen)
        if compared is Outcome.EQUAL and runs.others:
            sizes = runs.sizes.items()
            branches.update({int(n): None for symbol, n in sizes if is_data_dependent(symbol)})
        return compared

    usual = next(
        (n for n in _USUAL if outcome(partial(_size_of, n, None, n)) is Outcome.EQUAL and not runs.others), None
    )
    if usual is None:
        return DataSizes(tuple(branches), tuple(_sentences([*_assuming(runs.nodes)], 1)))
    for size in _small_sizes(runs.data_sizes):
        for chosen in _choices(size, usual, runs.made):
            if outcome(chosen) not in (Outcome.EQUAL, Outcome.RAISES):
                findings.update(dict.fromkeys(_sentences(runs.others[:1], size)))
    return DataSizes(tuple(branches), tuple(findings))


def _small_sizes(sizes: Iterable[sympy.Expr]) -> dict[int, None]:
    """Returns 1 and 0, and the sizes for which an expression in the shape of a tensor is 1 or 0."""
    of_one = [size for size in sizes if len(size.free_symbols) == 1]
    tried = [(size.xreplace(dict.fromkeys(size.free_symbols, n)), n) for size in of_one for n in range(_LARGEST)]
    return {1: None, 0: None, **{n: None for value, n in tried if value in (0, 1)}}


def _size_of(size: int, only: int | None, usual: int, order: int) -> int:
    """Returns the size of the number that is made at a place in the order: one size for all, or for one of them."""
    return size if only in (None, order) else usual


def _choices(size: int, usual: int, count: int) -> Iterator[Callable[[int], int]]:
    """Yields functions that choose the sizes, by their order: all are one size, and each alone is."""
    yield partial(_size_of, size, None, usual)
    if 1 < count < _MANY:
        yield from (partial(_size_of, size, only, usual) for only in range(count))


def _assuming(nodes: Iterable[Any]) -> Iterator[torch.fx.Node]:
    """Yields the calls that squeeze an axis whose size depends on data and may be 1, or make it another size."""
    for node in nodes:
        value = node.meta.get("val")
        sizes = list(value.shape) if isinstance(value, torch.Tensor) else []
        if axes := squeezed_axes(node):
            shape = node.args[0].meta["val"].shape
            removed = [shape[axis] for axis in axes if shape]
            if any(free_unbacked_symbols(size) and not statically_known_true(size != 1) for size in removed):
                yield node
        elif any(isinstance(size, torch.SymInt) and _is_replaced(size) for size in sizes):
            yield node


def _is_replaced(size: torch.SymInt) -> bool:
    return any(map(is_data_dependent, as_made(size).free_symbols - expression(size).free_symbols))


def _sentences(nodes: Sequence[torch.fx.Node], size: int) -> Iterator[str]:
    """Yields one sentence for each line whose calls take a size for another one, or one for many lines."""
    counts: Counter[tuple[bool, str]] = Counter()
    for node in nodes:
        line = call_line(node).strip()
        line = "" if line.startswith("(<") else line  # the code of a branch is in no file
        counts[bool(squeezed_axes(node)), line] += 1
    common = [line for (_, line), _ in counts.most_common(3) if line]
    does = [("removes the axis" if squeezes else "computes another shape", line) for squeezes, line in counts]
    if len(counts) > 3:
        does = [("computes another shape", f"at {len(counts)} places, most often {', '.join(common)}")]
    for verb, line in does:
        yield (
            f"The exported model may be wrong where a size that depends on data is {size}, because the code {verb} for "
            f"this size{' ' if line else ''}{line}."
        )
