"""Generated expressions of dynamic sizes, and writes to views: right, or told."""

from __future__ import annotations

import random

import pytest

from tests.capture.size_trials import Row
from tests.fuzz.sizes import judge, rows, write

ROWS = list(rows(1, 12))


def test_a_seed_has_the_same_rows_again() -> None:
    texts = [row.function.__doc__ for row in ROWS]
    assert texts == [row.function.__doc__ for row in rows(1, 12)] != [row.function.__doc__ for row in rows(2, 12)]
    assert len({*texts}) == len(ROWS) >= 8


def test_a_write_returns_the_matrix() -> None:
    assert write(random.Random(3)).startswith("[y := x * 1, v := y")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.function.__doc__)
def test_a_generated_row_is_right_or_told(row: Row) -> None:
    assert not judge(row).problems
