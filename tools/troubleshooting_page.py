"""Writes the sections of docs/troubleshooting.md from fx_onnx/messages/explanations.toml.

    python -m tools.troubleshooting_page

The text above the first section of the page stays.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from fx_onnx.messages.explanations import FIELDS, explanations
from fx_onnx.messages.findings import AREAS

PAGE = Path(__file__).parents[1] / "docs" / "troubleshooting.md"


def page(before: str) -> str:
    """Returns the page, of which ``before`` is an earlier version."""
    parts, areas = [before.partition("\n## ")[0].rstrip()], dict(AREAS)
    for id, fields in explanations().items():
        if area := areas.pop(id[:4], ""):
            parts.append(f"## {area}")
        lines = (f"- **{title}**: {fields[field]}" for field, title in FIELDS.items())
        wrapped = (
            textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            for line in lines
        )
        parts += [f"### {id}", "\n".join(wrapped)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
