"""Writes the report of one export: as HTML (html_report.py) and as Markdown, with the same facts."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fx_onnx.files.destination import writing
from fx_onnx.program.export_facts import Facts
from fx_onnx.report.facts import gather, verdict_of
from fx_onnx.report.html_report import page
from fx_onnx.report.report_sections import Section, headline, module_differences, sections

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from fx_onnx.program.onnx_program import ONNXProgram

__all__ = ["markdown", "write", "write_page", "write_report"]

_MOST_MODULES = 30
_MARKUP = re.compile(r"[\\`*|]|(?<![^\W_])_|_(?![^\W_])|(?<=\])\(")
"""What Markdown takes for markup; an underscore inside a word is none, nor is a bracket without a link."""


def write_report(
    facts: Facts,
    program: ONNXProgram | None,
    exported: ExportedProgram | None,
    folder: str | os.PathLike[str],
) -> Path:
    """Writes the report of an export with the facts of its model; see ``write``."""
    return write(gather(facts, program, exported), folder)


def write(facts: Facts, folder: str | os.PathLike[str], *, when: datetime | None = None) -> Path:
    """Writes the report to ``onnx_export_<time>_<success or the stage that failed>.html``, and the same as ``.md``.

    Args:
        facts: the content of the report.
        folder: the folder of the files. It is created if it does not exist.
        when: the time in the names of the files; by default the current time.

    Returns:
        The path of the HTML file.

    Raises:
        ArgumentError: the folder or a file cannot be written.
    """
    outcome = "success" if not facts.failed_stage and facts.error is None else facts.failed_stage or "failure"
    stamp = (when or datetime.now()).strftime("%Y-%m-%d_%H-%M-%S-%f")
    path = Path(folder) / f"onnx_export_{stamp}_{outcome}.html"
    with writing("The report", folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".md").write_text(markdown(facts), encoding="utf-8")
        path.write_text(page(facts), encoding="utf-8")
    return path


def write_page(facts: Facts, program: ONNXProgram, path: str | os.PathLike[str]) -> None:
    """Writes the HTML report of a program to a path.

    Raises:
        ArgumentError: the file cannot be written.
    """
    with writing("The report", path):
        text = page(gather(facts, program, program.exported_program))
        Path(path).write_text(text, encoding="utf-8")


def markdown(facts: Facts) -> str:
    """Returns the report as Markdown."""
    verdict = verdict_of(facts)
    parts = [f"# {_plain(verdict.title)}", *(_plain(detail) for detail in verdict.details if detail)]
    parts.append("\n".join(f"- {name}: {_plain(text)}" for name, text in headline(facts).items()))
    shown = sections(facts)
    parts += [_section(section) for section in shown if section.place == "first"]
    if facts.call:
        parts.append(_fenced(facts.call, "python"))
    parts += [_section(section) for section in shown if section.place == "top"]
    if facts.graphs:
        parts.append(_section(_modules(facts)))
    parts += [_section(section) for section in shown if section.place == "bottom"]
    parts += [_folded(section) for section in shown if section.place == "dump"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _modules(facts: Facts) -> Section:
    """Returns the outermost modules; the HTML report shows all of them."""
    graph = facts.graphs[0]
    differences = module_differences(facts, graph)
    rows = [
        (
            module.path or "(model)",
            module.kind,
            f"{module.nodes:,}",
            f"{module.parameters:,}",
            f"{facts.module_seconds[module.path]:.3f}" if module.path in facts.module_seconds else "",
            f"{differences[index].max_abs:.3g}" if index in differences else "",
        )
        for index, module in enumerate(graph.modules)
        if len(list(graph.modules_of(index))) <= 3  # the model, its modules, and theirs
    ]
    left_out = len(graph.modules) - min(len(rows), _MOST_MODULES)
    note = f"{left_out} inner modules are in the HTML report only." if left_out else ""
    header = ("module", "class", "nodes#", "parameters#", "seconds#", "difference#")
    return Section("Modules", header, rows[:_MOST_MODULES], note)


def _section(section: Section) -> str:
    table = _table(section.header, section.rows) if section.rows else ""
    text = _fenced(section.text, "") if section.text else ""
    return "\n\n".join(part for part in (f"## {section.title}", section.note, table, text) if part)


def _folded(section: Section) -> str:
    body = _section(section).partition("\n\n")[2]
    return f"<details><summary>{section.title}</summary>\n\n{body}\n\n</details>"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rules = ["---:" if name.endswith("#") else "---" for name in header]
    lines = [[name.removesuffix("#") for name in header], rules, *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Returns a text in which Markdown and HTML see no markup."""
    return _MARKUP.sub(r"\\\g<0>", html.escape(" ".join(text.split()), quote=False))


def _fenced(text: str, language: str) -> str:
    """Returns a code block whose fence is longer than every fence in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
