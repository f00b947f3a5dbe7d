"""``fx-onnx explain``: what the id of a message means."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from fx_onnx.messages import explanations

__all__ = ["explain"]


def explain(
    message_id: Annotated[str, typer.Argument(help="The id in a message, such as FX1201.", show_default=False)] = "",
) -> None:
    """Explains a message by its id. Without an id, it lists all ids."""
    if message_id:
        for paragraph in explanations.explain(message_id).split("\n\n"):
            typer.echo(textwrap.fill(paragraph, 100, subsequent_indent="  ", break_long_words=False))
    else:
        for known, cause in explanations.causes().items():
            typer.echo(f"{known}  {textwrap.shorten(cause, 90)}")
