"""Conditions are true: the program is right within them, eager mode fails outside of a bound, findings tell faults."""

from __future__ import annotations

import pytest

from tests.capture.size_expressions import FAMILIES
from tests.capture.size_trials import Family, examine, text_of


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name.replace(" ", "_"))
def test_conditions_are_true(family: Family) -> None:
    outcomes = [examine(family, row) for row in family]
    wrong = [f"{each.text} [{'; '.join(each.conditions)}]: {problem}" for each in outcomes for problem in each.problems]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(outcomes)} expressions:", *wrong])


def test_the_table_has_each_expression_once() -> None:
    texts = [(family.name, text_of(row), row.example) for family in FAMILIES for row in family]
    assert len(set(texts)) == len(texts) >= 400
