"""Writes the tables of docs/passes.md from the docstrings of the passes.

    python -m tools.pass_table

The docstring of a pass starts with ``pattern → replacement`` and has a sentence that starts with "Legal".
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.optimize import PASSES
from fx_onnx.passes.rewriter import Pass

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "passes.md"


def described(each: Pass) -> tuple[str, str]:
    """Returns what a pass rewrites and why that is legal, from its docstring.

    Raises:
        ValueError: the docstring does not have the form that the module describes.
    """
    text = inspect.cleandoc(type(each).__doc__ or "")
    rewrites = " ".join(text.split("\n\n")[0].split())
    legal = re.search(r"\bLegal (?:because|for|where)\b.*?\.(?=\s|$)", text, re.S)
    if "→" not in rewrites or legal is None:
        raise ValueError(f'the docstring of {each.name} needs "pattern → replacement" and a sentence "Legal ..."')
    return rewrites.removesuffix("."), " ".join(legal[0].split())


def table(passes: Iterable[Pass]) -> str:
    """Returns a Markdown table with a row for each pass."""
    rows = ["| name | rewrites | legality |", "|---|---|---|"]
    for each in passes:
        path = Path(inspect.getfile(type(each))).resolve().relative_to(ROOT).as_posix()
        cells = [cell.replace("|", r"\|").replace("``", "`") for cell in described(each)]
        rows.append(f"| [`{each.name}`](../{path}) | {cells[0]} | {cells[1]} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """Returns the text of docs/passes.md with its tables replaced by new ones."""
    for marker, passes in (("PASSES", PASSES), ("LEGALIZATIONS", LEGALIZATIONS)):
        pattern = rf"(?<=<!-- {marker} -->\n).*?(?=\n<!-- end -->)"
        rows = table(passes)
        text = re.sub(pattern, lambda _, rows=rows: rows, text, flags=re.S)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
