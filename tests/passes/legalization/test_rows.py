"""The rows of the default target as a whole."""

from pathlib import Path

from fx_onnx.onnx_model.opsets import MINIMUM_NATIVE_OPSET, OLDEST_OPSET
from fx_onnx.passes.legalization.rows import ROWS, SUBJECTS, rows_of
from fx_onnx.passes.legalization.table import DEFAULT
from fx_onnx.targets.known_targets import NAMES
from tests.passes.checking import with_swiglu


def test_every_file_with_rows_is_a_subject() -> None:
    folder = Path(SUBJECTS[0].__file__ or "").parent
    with_rows = {path.stem for path in folder.glob("*.py") if "\n@legalizes(" in path.read_text(encoding="utf-8")}
    assert {each.__name__.rpartition(".")[2] for each in SUBJECTS} == with_rows


@with_swiglu
def test_each_row_is_valid_and_read_by_a_step_a_target_or_the_64_bit_operators() -> None:
    for row in ROWS:
        row.check()
        assert {*row.targets} <= {*NAMES, DEFAULT}, row.name
        assert not row.is_of_opset or OLDEST_OPSET <= (row.until or 0) < MINIMUM_NATIVE_OPSET, row.name


def test_the_rows_do_not_depend_on_the_order_of_imports() -> None:
    """Other files may have added rows to the table before."""
    assert [row.__module__ for row in ROWS] == sorted(row.__module__ for row in ROWS)
    assert {row.__module__ for row in ROWS} == {each.__name__ for each in SUBJECTS}
    assert rows_of(reversed(SUBJECTS)) == ROWS
