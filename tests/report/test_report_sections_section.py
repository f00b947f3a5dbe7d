"""Rows whose names differ in a number fold into one row, which keeps what they share."""

from __future__ import annotations

from fx_onnx.report.report_sections import Section, folded_names

HEADER = ("", "name", "type", "difference#")
CACHE = [("ok", f"cache.{layer}.{part}", f"{part}[2]", str(layer)) for layer in range(3) for part in ("key", "value")]
OTHER = ("ok", "cache.7.key", "key[2]", "nan")


def test_rows_that_differ_in_a_number_fold() -> None:
    found = Section("Outputs", HEADER, [("ok", "logits", "float[2]", "9"), *CACHE]).folded(1)
    assert [list(row) for row in found.rows] == [
        ["ok", "logits", "float[2]", "9"],
        ["ok", "cache.* (6)", "key[2] or value[2]", "2"],
    ]
    assert found.inner == {1: CACHE}
    worst = Section("Outputs", HEADER, [*CACHE, OTHER]).folded(1)
    assert worst.rows == [["ok", "cache.* (7)", "key[2] or value[2]", "nan"]]


def test_few_rows_and_rows_of_another_state_stay() -> None:
    few = Section("Outputs", HEADER, CACHE[:4]).folded(1)
    assert (few.rows, few.inner) == (CACHE[:4], {})
    wrong = ("differs", "cache.3.key", "key[2]", "5")
    mixed = Section("Outputs", HEADER, [*CACHE, wrong]).folded(1)
    assert mixed.rows == [["ok", "cache.* (6)", "key[2] or value[2]", "2"], wrong]


def test_places_fold_by_axis_and_by_sizes() -> None:
    keys = [f"cache_{layer}_key.shape[2]" for layer in range(5)]
    assert folded_names(["x.shape[0]", *keys]) == "x.shape[0], cache_*.shape[2] (5)"
    assert folded_names([f"y_{number} at n=3" for number in range(5)]) == "y_* at n=3 (5)"
    assert folded_names(["conv2d", "x1"] * 3) == "conv2d, x1, conv2d, x1, conv2d, x1"
