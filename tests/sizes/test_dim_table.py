"""The table of dims has one line for each dim."""

from __future__ import annotations

import pytest

from fx_onnx.sizes.dim_table import DimSummary, DimTable, SizeCondition

ROWS = DimSummary("rows", ("x.shape[0]",))
WIDTH = DimSummary("width", ("x.shape[1]", "y.shape[1]"), "fixed at 16", "(model.py:3: return x + self.p)")


def test_text() -> None:
    table = DimTable([ROWS, WIDTH])
    assert str(table) == "rows: any\nwidth: fixed at 16, model.py:3: return x + self.p"
    assert len(table) == 2
    assert list(table) == [ROWS, table[1]]
    assert "fixed at 16" in repr(table)
    assert str(DimTable()) == "Every dim is static."


def test_conditions() -> None:
    even = SizeCondition("n % 2 == 0", "finding", ("n",), "takes another branch", "", _holds=lambda n: n % 2 == 0)
    longer = SizeCondition("n < m", "bound", ("n", "m"), _holds=lambda n, m: n < m)
    assert [even.holds({"n": n, "m": 0}) for n in (2, 3)] == [True, False]
    assert [longer.holds({"m": m, "n": 2}) for m in (2, 3)] == [False, True]
    assert str(even) == "n % 2 == 0"
    assert "lambda" not in repr(even)
    table = DimTable([ROWS], [even, longer])
    assert table.conditions == (even, longer)
    assert DimTable().conditions == ()


def test_a_condition_on_a_dim_that_is_not_given() -> None:
    with pytest.raises(KeyError, match="n"):
        SizeCondition("n > 2", "bound", ("n",), _holds=lambda n: n > 2).holds({"m": 3})


def test_a_repl_shows_the_text() -> None:
    for table in (
        DimTable(),
        DimTable([DimSummary("n", ("x.shape[0]",), "even")]),
        DimTable([DimSummary("m", ())] * 2),
    ):
        assert repr(table) == str(table)
