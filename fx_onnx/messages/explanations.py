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

__all__ = ["FIELDS", "causes", "explain", "explanations"]

FIELDS = {"cause": "Cause", "remedy": "What to do", "example": "Example"}
"""The fields of an explanation, and their titles."""


_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")  # of Markdown


@cache
def explanations() -> Mapping[str, Mapping[str, str]]:
    """Returns the fields of each id, as Markdown."""
    return tomllib.loads((Path(__file__).parent / "explanations.toml").read_text("utf-8"))


def explain(id: Any) -> str:
    """Returns the explanation of an id as plain text, with a paragraph for each field.

    Args:
        id: such as ``FX1201``, also its number alone, or the end of a message, ``[fx-onnx explain FX1201]``.

    Raises:
        ArgumentError: no message has this id.
    """
    number = re.search(r"\d{4}", str(id))
    wanted = f"FX{number[0]}" if number is not None else str(id).upper()
    fields = explanations().get(wanted)
    if fields is None:
        hint = did_you_mean(wanted, explanations()) or "; fx-onnx explain lists all ids."
        raise ArgumentError(f"No message has the id {shown(id)}{hint}", id=MessageId.UNKNOWN_NAME)
    texts = (_LINK.sub(r"\1 (docs/\2)", fields[field]) for field in FIELDS)
    return "\n\n".join((wanted, *(f"{title}: {text}" for title, text in zip(FIELDS.values(), texts, strict=True))))


def causes() -> dict[str, str]:
    """Returns the cause of each id as plain text."""
    return {id: _LINK.sub(r"\1", fields["cause"]) for id, fields in explanations().items()}
