"""What becomes of an expression of dynamic sizes: it is exported once, and run at many sizes.

The sizes have names. The conditions of ``program.dims`` decide what is expected of the program and of eager mode at
other sizes; the verdicts of size_expressions.py say what was found.
"""

from __future__ import annotations

import ast
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import fx_onnx
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.onnx_model.tolerances import distance_of


class Row(NamedTuple):
    """An expression with another example, or one that the export refuses, or that is known to be wrong.

    ``refused`` and ``wrong`` are the reasons; a row that is not refused, or right, in spite of them is a problem.
    """

    function: Callable[..., Any]
    example: tuple[int, ...] = ()
    refused: str = ""
    wrong: str = ""


@dataclass(frozen=True)
class Family:
    """Expressions of the same inputs.

    Attributes:
        name: the name of the family.
        rows: functions of the inputs, then of their sizes.
        shapes: the shape of each input; a dynamic size is a name.
        example: the sizes of the example.
        smallest: the smallest size to try.
    """

    name: str
    rows: Sequence[Row | Callable[..., Any]]
    shapes: tuple[tuple[str | int, ...], ...] = (("n", 4),)
    example: tuple[int, ...] = (9,)
    smallest: int = 1

    def __iter__(self) -> Iterator[Row]:
        for each in self.rows:
            row = each if isinstance(each, Row) else Row(each)
            yield row if row.example else row._replace(example=self.example)

    @property
    def names(self) -> list[str]:
        """The names of the sizes, in the order of the inputs."""
        return list(dict.fromkeys(each for shape in self.shapes for each in shape if isinstance(each, str)))


@functools.cache
def _lambdas(path: str) -> dict[int, str]:
    nodes = ast.walk(ast.parse(Path(path).read_text(encoding="utf-8")))
    return {node.lineno: ast.unparse(node.body) for node in nodes if isinstance(node, ast.Lambda)}


def text_of(row: Row) -> str:
    """Returns the expression as it stands in the table or in a docstring, or the statements of the function."""
    function = row.function
    if function.__doc__:
        return function.__doc__
    if function.__name__ == "<lambda>":
        return _lambdas(function.__code__.co_filename)[function.__code__.co_firstlineno]
    (definition,) = ast.parse(inspect.getsource(function)).body
    assert isinstance(definition, ast.FunctionDef)
    return "; ".join(" ".join(ast.unparse(each).split()) for each in definition.body)


# ---------------------------------------------------------------- what becomes of an expression

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 33)
MORE_SIZES = (*range(2, 71), 1, 0)
"""The sizes at which a finding is tried that excludes none of SIZES; 0 and 1 last, because few dims declare them."""


@dataclass
class Outcome:
    """What became of an expression.

    Attributes:
        text: the expression.
        verdict: as in the docstring of size_expressions.py.
        conditions: the conditions in words, or why the export is refused.
        problems: what is wrong, each in a line.
    """

    text: str
    verdict: str = ""
    conditions: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def blame(self, verdict: str, problem: str) -> None:
        """Adds a problem. The first one is the verdict."""
        self.verdict = self.verdict or verdict
        self.problems.append(f"{verdict}: {problem}")


class _Module(nn.Module):
    def __init__(self, family: Family, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        places = {name: (i, axis) for i, s in enumerate(family.shapes) for axis, name in enumerate(s)}
        self.places = [places[name] for name in family.names]

    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        tensors = (x,) if y is None else (x, y)
        return self.function(*tensors, *(tensors[i].shape[axis] for i, axis in self.places))


class _Trial:
    """Runs the program and the module of an expression, once for each choice of sizes."""

    def __init__(self, family: Family, row: Row) -> None:
        self._family = family
        self._module = _Module(family, row.function).eval()
        axes = [{axis: name for axis, name in enumerate(s) if isinstance(name, str)} for s in family.shapes]
        example = self._inputs(row.example)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.program = fx_onnx.export(self._module, example, dynamic_shapes=axes, optimize=False, verbose=False)
        self._found: dict[tuple[int, ...], tuple[bool, str]] = {}

    def _inputs(self, sizes: Sequence[int]) -> tuple[Tensor, ...]:
        known = dict(zip(self._family.names, sizes, strict=True))
        generator = torch.Generator().manual_seed(0)
        shapes = [[known[each] if isinstance(each, str) else each for each in s] for s in self._family.shapes]
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    def run(self, sizes: tuple[int, ...]) -> tuple[bool, str]:
        """Returns whether eager mode runs at these sizes, and how the program differs from it: empty if it does not."""
        if sizes not in self._found:
            self._found[sizes] = self._run(self._inputs(sizes))
        return self._found[sizes]

    def _run(self, inputs: tuple[Tensor, ...]) -> tuple[bool, str]:
        want, eager_error = _call(self._module, inputs)
        got, error = _call(self.program, inputs)
        if eager_error or error:
            both = eager_error and error
            return not eager_error, "" if both else f"eager mode {eager_error or 'runs'}, the program {error or 'runs'}"
        return True, _difference(got, want)


def _call(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> tuple[list[Tensor], str]:
    """Returns the results as tensors, and how the call fails: empty if it does not."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return [torch.as_tensor(each) for each in pytree.tree_leaves(function(*inputs))], ""
        except Exception as error:
            return [], f"fails ({' '.join(str(error).split())[:60]})"


def _difference(got: list[Tensor], want: list[Tensor]) -> str:
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    return next((far.problem for far in map(distance_of, want, got) if far.problem), "")


def sizes_of(family: Family, example: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns the example and the sizes to try; of two dims those that are near to each other."""
    sizes = [size for size in SIZES if size >= family.smallest]
    if len(family.names) == 1:
        return list(dict.fromkeys([example, *((n,) for n in sizes)]))
    pairs = [(n, m) for n in sizes for m in (n - 1, n, n + 1, n + 3, 2 * n, 4, example[1]) if m >= family.smallest]
    return list(dict.fromkeys([example, *pairs, *((example[0], m) for m in sizes)]))


def examine(family: Family, row: Row) -> Outcome:
    """Exports an expression, runs it at all sizes, and compares with its conditions."""
    outcome = Outcome(text_of(row))
    try:
        trial = _Trial(family, row)
    except OnnxExporterError as error:
        outcome.conditions = [" ".join(str(error).split())[:160]]
        if not row.refused:
            outcome.blame("REFUSED", f"the table does not list it as refused: {outcome.conditions[0]}")
        outcome.verdict = outcome.verdict or "refused"
        return outcome
    if row.refused:
        outcome.blame("exported", f"the table lists it as refused: {row.refused}")
    conditions = trial.program.dims.conditions
    outcome.conditions = [f"{each.condition} ({each.kind})" for each in conditions]
    for kind in {each.kind for each in conditions} - {"bound", "finding"}:
        outcome.blame("unknown kind", kind)
    _check_sizes(outcome, trial, conditions, family, row.example)
    for each in conditions:
        if each.kind == "finding":
            _check_finding(outcome, trial, each, family, row.example)
    if row.wrong:
        if outcome.problems:
            outcome.verdict, outcome.problems = f"known: {row.wrong}", []
        else:
            outcome.blame("right now", f"the table lists it as wrong: {row.wrong}")
    if not outcome.verdict:
        kinds = {each.kind for each in conditions}
        outcome.verdict = "finding" if "finding" in kinds else "bound" if kinds else "right"
    return outcome


def _excluding(conditions: Sequence[Any], family: Family, sizes: tuple[int, ...]) -> list[Any]:
    known: Mapping[str, int] = dict(zip(family.names, sizes, strict=True))
    return [each for each in conditions if not each.holds(known)]


def _check_sizes(
    outcome: Outcome, trial: _Trial, conditions: Sequence[Any], family: Family, example: tuple[int, ...]
) -> None:
    """Checks that the program is right within the conditions, and that eager mode fails where only bounds exclude."""
    for each in _excluding(conditions, family, example):
        outcome.blame("excludes the example", each.condition)
    silent, untrue = [], []
    for sizes in sizes_of(family, example):
        excluding = _excluding(conditions, family, sizes)
        if any(each.kind != "bound" for each in excluding):
            continue  # both sides may be anything
        runs, difference = trial.run(sizes)
        if not excluding and difference:
            silent.append((sizes, difference))
        if excluding and runs:
            untrue.append((sizes, excluding[0].condition))
    for verdict, found in (("SILENT WRONG", silent), ("untrue bound", untrue)):
        if found:
            places = ", ".join("x".join(map(str, sizes)) for sizes, _ in found[:12])
            outcome.blame(verdict, f"at {places}: {found[0][1]}")


def _check_finding(outcome: Outcome, trial: _Trial, finding: Any, family: Family, example: tuple[int, ...]) -> None:
    """Checks that the program is wrong, or a side fails, at one of the sizes that a finding excludes."""
    more = MORE_SIZES if len(family.names) == 1 else (*MORE_SIZES[::8], 1, 0)
    others = [(n,) for n in more] if len(family.names) == 1 else [(n, m) for n in more for m in more]
    excluded = [s for s in (*sizes_of(family, example), *others) if _excluding([finding], family, s)]
    if not any(not runs or difference for runs, difference in map(trial.run, excluded)):
        outcome.blame("untrue finding", f"{finding.condition}, right at all {len(excluded)} tried sizes")
