"""The table of dims has one line for each dim."""

from __future__ import annotations

from fx_onnx.core.dim_table import DimSummary, DimTable

ROWS = DimSummary("rows", ("x.shape[0]",))
WIDTH = DimSummary("width", ("x.shape[1]", "y.shape[1]"), "fixed at 16", "(model.py:3: return x + self.p)")


def test_text() -> None:
    table = DimTable([ROWS, WIDTH])
    assert str(table) == "rows: any\nwidth: fixed at 16, model.py:3: return x + self.p"
    assert len(table) == 2
    assert list(table) == [ROWS, table[1]]
    assert "fixed at 16" in repr(table)
    assert str(DimTable()) == "Every dim is static."
