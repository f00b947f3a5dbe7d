"""Formats the report as one HTML file that needs no network: the facts as JSON, and the script that shows them.

The page contains no text of the model as markup. Names are strings of the JSON, and the script sets them as text. A
content security policy allows the page's own style and scripts by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fx_onnx.program.export_facts import Facts
from fx_onnx.report.facts import gather_head, verdict_of
from fx_onnx.report.graph_facts import GraphFacts, ModuleFacts
from fx_onnx.report.report_sections import (
    compared_values,
    headline,
    letters_of_dims,
    module_differences,
    sections,
    with_letters,
)
from fx_onnx.verification.tensor_comparison import Difference

if TYPE_CHECKING:
    from fx_onnx.program.onnx_program import ONNXProgram

__all__ = ["head", "notebook_head", "page"]

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This report is shown by a script in this file; enable JavaScript to read it.</noscript>
<main id="report"></main>
<script id="facts" type="application/json">{facts}</script>
<script>{dagre}</script>
<script>{script}</script>
</body>
</html>
"""


def page(facts: Facts) -> str:
    """Returns the report as the text of an HTML file."""
    style, dagre, script = _asset("report.css"), _asset("dagre.min.js"), _asset("graph.js") + _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(dagre)}' '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=html.escape(f"{facts.model_name or 'ONNX model'}: {verdict_of(facts).title}"),
        style=style,
        facts=_embedded(_data(facts)),
        dagre=dagre,
        script=script,
    )


def notebook_head(facts: Facts, program: ONNXProgram) -> str:
    """Returns the head of the report of a program, which notebooks show."""
    return head(gather_head(facts, program))


def head(facts: Facts) -> str:
    """Returns the head of the report as an HTML table, for a notebook."""
    verdict = verdict_of(facts)
    rows = {**headline(facts)}
    if facts.model is not None:
        rows["inputs"], rows["outputs"] = "; ".join(facts.model.inputs), "; ".join(facts.model.outputs)
    cells = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f"<table><caption>{html.escape(verdict.title)}</caption><tbody>{cells}</tbody></table>"


@cache
def _asset(name: str) -> str:
    return files("fx_onnx").joinpath("report", "assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Returns the hash source of a content security policy (W3C, CSP Level 3) for an inline style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _embedded(data: Any) -> str:
    """Returns JSON that may stand in a script element: no text in it can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# ---------------------------------------------------------------- the facts as JSON


def _data(facts: Facts) -> dict[str, Any]:
    """Returns the facts in the form that assets/report.js reads."""
    verdict = verdict_of(facts)
    return {
        "verdict": {"state": verdict.state, "title": verdict.title, "details": [x for x in verdict.details if x]},
        "headline": list(headline(facts).items()),
        "call": facts.call,
        "sections": [vars(section) for section in sections(facts)],
        "graphs": [_graph(facts, graph) for graph in facts.graphs],
    }


def _graph(facts: Facts, graph: GraphFacts) -> dict[str, Any]:
    """Returns a graph; nodes and values are arrays instead of objects, because there may be very many."""
    differences = module_differences(facts, graph)
    by_value, letters = compared_values(facts), letters_of_dims(facts)
    return {
        "name": graph.name,
        "modules": [
            _module(module, facts.module_seconds, differences.get(index)) for index, module in enumerate(graph.modules)
        ],
        "nodes": [list(vars(node).values()) for node in graph.nodes],
        "values": [
            [value.name, with_letters(value.type, letters), int(value.is_initializer)] for value in graph.values
        ],
        "sources": [
            [source.operators, source.fx, [[line.place, line.function, line.code] for line in source.frames]]
            for source in graph.sources
        ],
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "differences": {
            str(index): _difference(by_value[value.name])
            for index, value in enumerate(graph.values)
            if value.name in by_value
        },
    }


def _module(module: ModuleFacts, seconds: Mapping[str, float], difference: Difference | None) -> dict[str, Any]:
    return {
        "path": module.path,
        "label": module.label,
        "kind": module.kind.rpartition(".")[2],
        "class": module.kind,
        "parent": module.parent,
        "nodes": module.nodes,
        "parameters": module.parameters,
        "seconds": seconds.get(module.path) if module.path or module.parent is None else None,
        "difference": None if difference is None else _difference(difference),
    }


def _difference(one: Difference) -> dict[str, Any]:
    numbers = {"max": one.max_abs, "relative": one.max_rel, "allowed": one.tolerance}
    return {"ok": one.ok, "problem": one.problem, **{name: _number(number) for name, number in numbers.items()}}


def _number(value: float) -> float | str:
    """Returns a number, or its text if JSON has no such number."""
    return value if math.isfinite(value) else str(value)
