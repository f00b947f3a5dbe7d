"""One section of a report: a table, a text, or both. Rows whose names differ in a number fold into one row."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

__all__ = ["Row", "Section", "folded_names"]

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
    found = _NUMBERED.fullmatch(name)
    return f"{found[1]}*{found[2]}" if found else ""


def _together(title: str, cells: Sequence[str]) -> str:
    """Returns the cell of a row that replaces others: what they share, or the largest number."""
    if title.endswith("#"):
        return max(cells, key=lambda cell: math.inf if cell == "nan" else float(cell))
    different = list(dict.fromkeys(cells))
    return " or ".join(different) if len(different) <= 2 else f"{len(different)} different"
