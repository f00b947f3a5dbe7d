"""What the ids of messages mean: ``explanations.toml``, from which docs/troubleshooting.md is built too."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fx_onnx.messages.arguments import did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["FIELDS", "explain", "explanations"]

FIELDS = {"cause": "Cause", "remedy": "What to do", "example": "Example"}
"""The fields of an explanation, and their titles."""


@cache
def explanations() -> Mapping[str, Mapping[str, str]]:
    """Returns the fields of each id, as Markdown."""
    return tomllib.loads((Path(__file__).parent / "explanations.toml").read_text("utf-8"))


def explain(id: Any) -> str:
    """Returns the explanation of an id as plain text, with a paragraph for each field.

    Args:
        id: such as ``FX1201``, also in brackets or in small letters.

    Raises:
        ArgumentError: no message has this id.
    """
    wanted = str(id).strip("[] ").upper()
    fields = explanations().get(wanted)
    if fields is None:
        hint = did_you_mean(wanted, explanations()) or "; fx-onnx explain lists all ids."
        raise ArgumentError(f"No message has the id {shown(id)}{hint}", id=MessageId.UNKNOWN_NAME)
    # A link of Markdown becomes its text and the page.
    texts = (re.sub(r"\[([^]]+)\]\(([^)]+)\)", r"\1 (docs/\2)", fields[field]) for field in FIELDS)
    return "\n\n".join((wanted, *(f"{title}: {text}" for title, text in zip(FIELDS.values(), texts, strict=True))))
