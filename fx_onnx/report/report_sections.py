"""The sections of a report, as tables and texts without markup; markdown_report.py and html_report.py format them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from fx_onnx.program.export_facts import Facts, StageOutcome
from fx_onnx.report.facts import compared_outputs
from fx_onnx.report.graph_facts import GraphFacts
from fx_onnx.verification.tensor_comparison import Difference
from fx_onnx.verification.verification_result import worst_of

__all__ = [
    "Row",
    "Section",
    "compared_values",
    "folded_names",
    "headline",
    "letters_of_dims",
    "module_differences",
    "sections",
    "with_letters",
]

_SLOWEST = 12
_LONGEST_DIM = 32
"""A dim of an output with a longer expression gets a letter; the table of dims has the expression."""
_WORD = re.compile(r"\b[^\W\d]\w*\b(?!\()")
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def headline(facts: Facts) -> dict[str, str]:
    """Returns the figures of the model by name, in order; a fact that is not known is left out."""
    model = facts.model
    figures = {"model": facts.model_name}
    if model is not None:
        figures["opset"] = ", ".join(f"{domain} {number}".strip() for domain, number in model.opset.items())
        figures["nodes"] = f"{sum(model.operators.values()):,}"
        dtypes = sorted(model.dtypes, key=lambda dtype: -model.dtypes[dtype])
        stored = f"{size(model.parameter_bytes)}, {', '.join(dtypes)}" if dtypes else size(model.parameter_bytes)
        figures["parameters"] = f"{model.parameters:,} ({stored})"
    figures["file"] = " + ".join(f"{name} ({size(length)})" for name, length in facts.files.items())
    if facts.stages:
        figures["time"] = f"{facts.seconds:.2f} s"
    figures["versions"] = ", ".join(
        f"{name} {facts.versions[name]}" for name in ("fx_onnx", "torch") if name in facts.versions
    )
    return {name: text for name, text in figures.items() if text}


def size(length: float) -> str:
    """Returns a number of bytes with a unit, for example ``4.2 MB``."""
    unit = 0
    while length >= 1000 and unit < len(_UNITS) - 1:
        length, unit = length / 1000, unit + 1
    return f"{length:,.0f} {_UNITS[unit]}" if not unit or length >= 100 else f"{length:.1f} {_UNITS[unit]}"


def sections(facts: Facts) -> list[Section]:
    """Returns the sections that have content, in order."""
    every = [*_interface(facts), *_results(facts), *_rewrites(facts), *_slow(facts), *_operators(facts), *_dumps(facts)]
    return [section for section in every if section.rows or section.text or section.note]


def _interface(facts: Facts) -> Iterator[Section]:
    if facts.error is not None:
        yield Section("Error", text=facts.error, place="first")
    letters = letters_of_dims(facts)
    if facts.model is not None:
        texts = [("input", text) for text in facts.model.inputs] + [("output", text) for text in facts.model.outputs]
        rows = [(kind, *_split_type(with_letters(text, letters))) for kind, text in texts]
        yield Section("Inputs and outputs", ("", "name", "type"), rows, place="top").folded(1)
    if facts.dims is not None:
        dims = [(dim.name, folded_names(dim.where), dim.sizes, dim.place[1:-1]) for dim in facts.dims]
        inner = {
            number: [("", where, "", "") for where in dim.where]
            for number, (dim, row) in enumerate(zip(facts.dims, dims, strict=True))
            if "*" in row[1]
        }
        dims += [(name, folded_names(where), text, "") for name, where, text in _computed_dims(facts)]
        note = "" if dims else "Every dim is static."
        yield Section("Dims", ("dim", "where", "sizes", "because of"), dims, note, place="top", inner=inner)


def _split_type(text: str) -> tuple[str, str]:
    name, _, kind = text.rpartition(": ")
    return name, kind


def _dims(text: str) -> list[str]:
    """Returns the dims in the text of an input or output: ``x: float[batch, 8]``."""
    return text.rpartition("[")[2].removesuffix("]").split(", ")


def letters_of_dims(facts: Facts) -> dict[str, str]:
    """Returns a letter for each dim of an output whose expression is too long for a type."""
    model = facts.model
    if model is None:
        return {}
    taken = {word for text in (*model.inputs, *model.outputs) for dim in _dims(text) for word in _WORD.findall(dim)}
    free = (name for number in range(1, 1 << 16) if (name := "n" if number == 1 else f"n{number}") not in taken)
    dims = dict.fromkeys(dim for text in model.outputs for dim in _dims(text) if len(dim) > _LONGEST_DIM)
    return dict(zip(dims, free, strict=False))


def with_letters(text: str, letters: Mapping[str, str]) -> str:
    """Returns the text of a type with letters instead of long expressions."""
    for dim, letter in letters.items():
        text = re.sub(rf"(?<=[\[ ]){re.escape(dim)}(?=[,\]])", letter, text) if dim in text else text
    return text


def _computed_dims(facts: Facts) -> Iterator[tuple[str, list[str], str]]:
    """Yields the dims of outputs that have a letter, and those that depend on data, with their places and sizes."""
    model = facts.model
    if model is None:
        return
    known = {word for text in model.inputs for dim in _dims(text) for word in _WORD.findall(dim)}
    places: dict[str, list[str]] = {}
    for text in model.outputs:
        for axis, dim in enumerate(_dims(text)):
            words = [word for word in _WORD.findall(dim) if word not in known]
            for name in {dim: dim} | dict.fromkeys(words):
                places.setdefault(name, []).append(f"{_split_type(text)[0]}.shape[{axis}]")
    letters = letters_of_dims(facts)
    for dim, where in places.items():
        if dim in letters:
            yield letters[dim], where, dim
        elif _WORD.fullmatch(dim) and dim not in known:
            yield dim, where, "depends on data"


def _results(facts: Facts) -> Iterator[Section]:
    if facts.verification is not None:
        header = ("", "value", "type", "max difference#", "allowed#", "relative to scale#", "non-finite#", "problem")
        rows = [_difference(sizes, output) for sizes, output in compared_outputs(facts)]
        yield Section("Verification", header, rows, place="top").folded(1)


def _difference(sizes: str, one: Difference) -> tuple[str, ...]:
    shape = ", ".join(map(str, one.shape))
    numbers = (f"{one.max_abs:.3g}", f"{one.tolerance:.3g}", f"{one.max_rel:.3g}", str(one.nonfinite))
    return ("ok" if one.ok else "differs", f"{one.name}{sizes}", f"{one.dtype}[{shape}]", *numbers, one.problem)


def _rewrites(facts: Facts) -> Iterator[Section]:
    header = ("pass", "stage", "applied#", "nodes before#", "nodes after#", "switched off by")
    rows = [
        (
            run.name,
            run.stage,
            f"{run.applied:,}",
            f"{run.before:,}",
            f"{run.after:,}",
            run.switch or "always runs",
        )
        for run in facts.passes
    ]
    ran = any(stage.name == "optimize" and stage.ok for stage in facts.stages)
    note = "No pass changed the graph." if ran and not rows else ""
    yield Section("Rewrites", header, rows, note)


def _slow(facts: Facts) -> Iterator[Section]:
    stages = sorted(facts.stages, key=lambda stage: -1.0 if stage.seconds is None else stage.seconds, reverse=True)
    rows = [(stage.name, _seconds(stage, facts.seconds), _state(stage)) for stage in stages]
    yield Section("Stages, the slowest first", ("stage", "seconds#", "decisions"), rows)
    slowest = sorted(facts.module_seconds.items(), key=lambda pair: -pair[1])[:_SLOWEST]
    note = "The time that torch.export spent in the forward of a module, inner modules included." if slowest else ""
    yield Section(
        "Slowest modules", ("module", "seconds#"), [(name or "(model)", f"{t:.3f}") for name, t in slowest], note
    )


def _seconds(stage: StageOutcome, total: float) -> str:
    if stage.seconds is None:
        return ""
    return f"{stage.seconds:.3f} ({stage.seconds / total if total else 0:.0%})"


def _state(stage: StageOutcome) -> str:
    state = {True: "", False: "failed", None: "" if stage.note else "not reached"}[stage.ok]
    return "; ".join(text for text in (state, stage.note) if text)


def _operators(facts: Facts) -> Iterator[Section]:
    if facts.model is not None:
        yield Section("Operators", ("operator", "nodes#"), _by_count(facts.model.operators))
    rows = [
        (
            support.target,
            "no table" if support.share is None else f"{support.share:.1%}",
            support.source,
            " ".join(support.advice),
        )
        for support in facts.support or ()
    ]
    yield Section("Runtimes", ("target", "nodes with a kernel#", "source", "advice"), rows)
    missing = [
        (support.target, one.operator, one.node, one.line, one.reason)
        for support in facts.support or ()
        for one in support.missing
    ]
    yield Section("Nodes without a kernel", ("target", "operator", "node", "line", "reason"), missing, place="dump")


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(name, f"{count:,}") for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _dumps(facts: Facts) -> Iterator[Section]:
    before, after = facts.operators_before, facts.operators_after
    if before is not None:
        names = sorted({*before, *(after or {})})
        rows = [
            (name, f"{before.get(name, 0):,}", "not reached" if after is None else f"{after.get(name, 0):,}")
            for name in names
        ]
        yield Section("ATen operators", ("operator", "captured#", "decomposed#"), rows, place="dump")
    translated = [
        (one.operator, f"{one.count:,}", one.function or "none", one.place) for one in facts.translated_operators or ()
    ]
    yield Section("Translations", ("operator", "nodes#", "translation", "place"), translated, place="dump")
    yield Section("Versions", ("package", "version"), list(facts.versions.items()), place="dump")
    yield Section("Captured program", text=facts.exported_program or "", place="dump")
    yield Section("Profile", text=facts.profile or "", place="dump")


def module_differences(facts: Facts, graph: GraphFacts) -> dict[int, Difference]:
    """Returns the worst difference of the compared values that each module computes, by the index of the module."""
    producers = graph.producers() if facts.verification is not None else {}
    differences = [one for one in compared_values(facts).values() if one.name in producers]
    return worst_of((index, one) for one in differences for index in graph.modules_of(producers[one.name]))


def compared_values(facts: Facts) -> dict[str, Difference]:
    """Returns the difference of each compared value by its name.

    The values inside the model show the error of their own nodes, and are preferred to the outputs, which show the sum.
    """
    outputs = facts.verification.outputs if facts.verification is not None else ()
    return {one.name: one for one in (*outputs, *facts.values)}


# ---------------------------------------------------------------- one section

Row = Sequence[str]
_NUMBERED = re.compile(r"(.*?[._])\d+(?:[._].*?)??(\.shape\[\d+\]| at .*|)")
_FEWEST = 5
"""Fewer rows stay as they are."""


@dataclass(frozen=True)
class Section:
    """One section of a report: a table, a text, or both.

    Attributes:
        title: the heading.
        header: the columns of the table; a column whose name ends with ``#`` holds numbers.
        rows: the cells as text.
        note: a sentence above the table.
        text: a text that is shown as it is, such as a traceback.
        place: ``first``, ``top``, ``bottom``, or ``dump`` for what is folded away. HTML shows the graph after
            ``first``, Markdown the modules after ``top``.
        inner: the rows that a row replaces, by its index; HTML shows them on a click.
    """

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Row] = ()
    note: str = ""
    text: str = ""
    place: str = "bottom"
    inner: Mapping[int, Sequence[Row]] = field(default_factory=dict)

    def folded(self, column: int) -> Section:
        """Returns the section with one row for consecutive rows whose names in the column differ in a number."""
        rows: list[Row] = []
        inner: dict[int, Sequence[Row]] = {}
        for name, run in _runs(self.rows, lambda row: (*row[:column], _pattern(row[column]))):
            if not name:
                rows += run
                continue
            inner[len(rows)] = run
            cells = [_together(title, [row[index] for row in run]) for index, title in enumerate(self.header)]
            rows.append([*cells[:column], name, *cells[column + 1 :]])
        return replace(self, rows=rows, inner=inner)


def folded_names(names: Sequence[str]) -> str:
    """Returns names with commas; ``cache.* (24)`` is short for 24 names that differ in a number."""
    return ", ".join(name or ", ".join(run) for name, run in _runs(names, lambda name: (_pattern(name),)))


def _runs(items: Sequence[Any], key: Callable[[Any], Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yields runs of items with the same key and the name of the run; the name is empty where nothing is folded."""
    for (*_, pattern), group in groupby(items, key):
        run = list(group)
        yield (f"{pattern} ({len(run)})" if pattern and len(run) >= _FEWEST else ""), run


def _pattern(name: str) -> str:
    """Returns ``cache.*`` for ``cache.0.key``; empty if the name has no number of its own."""
    match = _NUMBERED.fullmatch(name)
    return f"{match[1]}*{match[2]}" if match else ""


def _together(title: str, cells: Sequence[str]) -> str:
    """Returns the cell of a row that replaces others: what they share, or the largest number."""
    if title.endswith("#"):
        return max(cells, key=lambda cell: math.inf if cell == "nan" else float(cell))
    different = list(dict.fromkeys(cells))
    return " or ".join(different) if len(different) <= 2 else f"{len(different)} different"
