"""Writes the tables of docs/passes.md from the docstrings of the passes.

    python -m tools.pass_table

The docstring of a pass, and of a rule of a step to an older opset, starts with ``pattern → replacement`` and has a
sentence that starts with "Legal".
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.legalization.opsets.ladder import LADDER
from fx_onnx.passes.optimize import PASSES
from fx_onnx.passes.rewriter import Pass
from fx_onnx.targets.known_targets import NAMES, find_target

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "passes.md"


def described(name: str, docstring: str | None) -> tuple[str, str]:
    """Returns what a pass or a rule rewrites and why that is legal, from its docstring.

    Raises:
        ValueError: the docstring does not have the form that the module describes.
    """
    text = inspect.cleandoc(docstring or "")
    rewrites = " ".join(text.split("\n\n")[0].split())
    legal = re.search(r"\bLegal (?:because|for|where)\b.*?\.(?=\s|$)", text, re.S)
    if "→" not in rewrites or legal is None:
        raise ValueError(f'the docstring of {name} needs "pattern → replacement" and a sentence "Legal ..."')
    return rewrites.removesuffix("."), " ".join(legal[0].split())


def table(passes: Iterable[Pass]) -> str:
    """Returns a Markdown table with a row for each pass."""
    rows = ["| name | rewrites | legality |", "|---|---|---|"]
    for each in passes:
        path = f"{each.__module__.replace('.', '/')}.py"  # the file itself may be an installed copy
        rows.append(f"| [`{each.name}`](../{path}) | {_cells(each.name, each.__doc__)} |")
    return "\n".join(rows)


def opset_table() -> str:
    """Returns a Markdown table with a row for each rule of the steps to older opsets."""
    rows = ["| step | operators | rewrites | legality |", "|---|---|---|---|"]
    for step in LADDER:
        for rule in dict.fromkeys(step.rewrites.values()):
            operators = ", ".join(name for name, each in step.rewrites.items() if each is rule)
            label = f"[{step.opset + 1} → {step.opset}](../fx_onnx/passes/legalization/opsets/step_{step.opset}.py)"
            rows.append(f"| {label} | {operators} | {_cells(operators, rule.__doc__)} |")
    return "\n".join(rows)


def _cells(name: str, docstring: str | None) -> str:
    return " | ".join(
        cell.replace("|", r"\|").replace("``", "`").replace("<", r"\<") for cell in described(name, docstring)
    )


def page(text: str) -> str:
    """Returns the text of docs/passes.md with its tables replaced by new ones."""
    of_targets = {each.name: each for name in NAMES for each in find_target(name).legalizations}
    legalizations = {each.name: each for each in LEGALIZATIONS} | of_targets
    fusions = {each.name: each for name in NAMES for each in find_target(name).fusions}
    tables = {
        "PASSES": table(PASSES),
        "LEGALIZATIONS": table(legalizations.values()),
        "FUSIONS": table(fusions.values()),
        "OPSETS": opset_table(),
    }
    for marker, rows in tables.items():
        pattern = rf"(?<=<!-- {marker} -->\n).*?(?=<!-- end -->)"
        text = re.sub(pattern, lambda _, rows=rows: f"{rows}\n", text, count=1, flags=re.S)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
