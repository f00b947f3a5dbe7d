"""Writes the tables of docs/passes.md from the docstrings of the passes.

    python -m tools.pass_table

The docstring of a pass, and of a row of the table of legalization, starts with ``pattern → replacement`` and has a
sentence that starts with "Legal".
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

from fx_onnx.backends.ladder import LADDER
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.optimize import PASSES
from fx_onnx.passes.rewriter import Pass
from fx_onnx.passes.room_passes import QuantizedWeightPass
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
    rows = ["| name | rewrites | condition |", "|---|---|---|"]
    for each in [each.load() if isinstance(each, QuantizedWeightPass) else each for each in passes]:
        path = f"{each.__module__.replace('.', '/')}.py"  # the file itself may be an installed copy
        rows.append(f"| [`{each.name}`](../{path}) | {_cells(each.name, each.__doc__)} |")
    return "\n".join(rows)


def target_table() -> str:
    """Returns a Markdown table of the passes that each target has beyond the default ones, and lacks of those."""
    lines = ["| target | its own passes | default passes that it leaves out |", "|---|---|---|"]
    for name in NAMES:
        names = {each.name: None for each in find_target(name).legalizations}
        own = [each for each in names if each not in {default.name for default in LEGALIZATIONS}]
        left_out = [each.name for each in LEGALIZATIONS if each.name not in names]
        if own or left_out:
            missing = "all" if len(left_out) == len(LEGALIZATIONS) else ", ".join(f"`{each}`" for each in left_out)
            lines.append(f"| `{name}` | {', '.join(f'`{each}`' for each in own)} | {missing} |")
    return "\n".join(lines)


def opset_table() -> str:
    """Returns a Markdown table with a line for each row of the steps to older opsets."""
    lines = ["| step | operators | rewrites | condition |", "|---|---|---|---|"]
    for step in LADDER:
        for row in dict.fromkeys(itertools.chain.from_iterable(step.rows.values())):
            operators = ", ".join(op_type for _, op_type in row.roots())
            label = f"[{step.opset + 1} → {step.opset}](../{row.__module__.replace('.', '/')}.py)"
            lines.append(f"| {label} | {operators} | {_cells(operators, row.__doc__)} |")
    return "\n".join(lines)


def _cells(name: str, docstring: str | None) -> str:
    """Returns what is rewritten, and where; the reason is for readers of the code only."""
    rewrites, legal = described(name, docstring)
    condition = "" if legal.startswith("Legal because") else legal.removeprefix("Legal ").removeprefix("where ")
    cells = (rewrites, re.split(", because |: ", condition)[0].removesuffix("."))
    return " | ".join(cell.replace("|", r"\|").replace("``", "`").replace("<", r"\<") for cell in cells)


def page(text: str) -> str:
    """Returns the text of docs/passes.md with its tables replaced by new ones."""
    of_targets = {each.name: each for name in NAMES for each in find_target(name).legalizations}
    legalizations = {each.name: each for each in LEGALIZATIONS} | of_targets
    fusions = {each.name: each for name in NAMES for each in find_target(name).fusions}
    tables = {
        "PASSES": table(PASSES),
        "TARGETS": target_table(),
        "LEGALIZATIONS": table(row for name, row in legalizations.items() if name not in fusions),
        "FUSIONS": table(fusions.values()),
        "OPSETS": opset_table(),
    }
    for marker, rows in tables.items():
        pattern = rf"(?<=<!-- {marker} -->\n).*?(?=<!-- end -->)"
        text = re.sub(pattern, lambda _, rows=rows: f"{rows}\n", text, count=1, flags=re.S)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
