"""The package explains each id of a message."""

from __future__ import annotations

import pytest

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.explanations import FIELDS, explain, explanations
from fx_onnx.messages.message_ids import MessageId


def test_each_id_has_all_fields() -> None:
    assert list(explanations()) == sorted(id.value for id in MessageId)
    assert [
        id for id, fields in explanations().items() if list(fields) != list(FIELDS) or not all(fields.values())
    ] == []


@pytest.mark.parametrize("id", ["FX1602", "[FX1602]", "fx1602"])
def test_an_explanation_is_plain_text(id: str) -> None:
    title, *paragraphs = explain(id).split("\n\n")
    assert title == "FX1602"
    assert [text.partition(": ")[0] for text in paragraphs] == ["Cause", "What to do", "Example"]


def test_a_link_names_its_page() -> None:
    assert "the table of versions (docs/install.md#versions)" in explain("FX1603")
    assert not [id for id in explanations() if "](" in explain(id)]


@pytest.mark.parametrize(("id", "hint"), [("FX1299", "did you mean"), ("other", "fx-onnx explain lists all ids")])
def test_another_id(id: str, hint: str) -> None:
    with pytest.raises(ArgumentError, match=f"No message has the id '{id}'; {hint}"):
        explain(id)
