"""All rows as a whole."""

from pathlib import Path

from fx_onnx.backends.legalization.rows import ROWS, SUBJECTS, legalizations
from fx_onnx.onnx_model.opsets import MINIMUM_NATIVE_OPSET, OLDEST_OPSET
from fx_onnx.passes.legalization import rows
from fx_onnx.passes.legalization.table import DEFAULT
from fx_onnx.passes.rules import Rule
from fx_onnx.targets.known_targets import NAMES, find_target
from tests.passes.checking import with_swiglu

OWN = [row for row in ROWS if row.__module__ in {each.__name__ for each in SUBJECTS}]


def test_every_file_with_rows_is_a_subject() -> None:
    folder = Path(SUBJECTS[0].__file__ or "").parent
    with_rows = {path.stem for path in folder.glob("*.py") if "\n@legalizes(" in path.read_text(encoding="utf-8")}
    assert {each.__name__.rpartition(".")[2] for each in SUBJECTS} == with_rows


@with_swiglu
def test_each_row_is_valid_and_read_by_a_step_or_a_target() -> None:
    for row in OWN:
        row.check()
        assert {*row.targets} <= {*NAMES}, row.name
        assert not row.is_of_opset or OLDEST_OPSET <= (row.until or 0) < MINIMUM_NATIVE_OPSET, row.name


def test_no_row_of_the_default_target_is_in_this_room() -> None:
    assert [row.name for row in OWN if row.lacks or {*row.targets} & {DEFAULT, "onnxruntime"}] == []
    assert legalizations("onnxruntime")[0] in rows.ROWS
    names = [each.name for each in find_target("onnxruntime").legalizations]
    assert [each.name for each in legalizations("onnxruntime")] == names


def test_the_rows_do_not_depend_on_the_order_of_imports() -> None:
    """Those of one subject stand together, first those of the core."""
    assert {*ROWS} == {*rows.ROWS, *OWN}
    modules = list(dict.fromkeys(row.__module__ for row in ROWS))
    assert modules == sorted(modules, key=lambda name: (name.rpartition(".")[2], "backends" in name))
    assert rows.rows_of((*rows.SUBJECTS, *reversed(SUBJECTS))) == ROWS


@with_swiglu
def test_the_passes_of_all_targets_are_valid() -> None:
    rules = [
        each
        for target in map(find_target, NAMES)
        for each in (*target.legalizations, *target.fusions)
        if isinstance(each, Rule)
    ]
    for each in rules:
        each.check()
    assert rules
