"""The tests of the core."""

from pathlib import Path

import pytest

from fx_onnx.extension_points.rooms import ROOMS
from tests.test_architecture import CORE
from tools.core_tests import core_tests


def test_every_part_of_the_core_has_tests_and_no_room_is_among_them() -> None:
    found = core_tests()
    assert {"tests/passes", "tests/decompositions", "tests/test_export.py", "tests/test_export_keywords.py"} <= set(
        found
    )
    assert [name for name in CORE if not {f"tests/{name}", f"tests/test_{name}.py"} & set(found)] == []
    assert [name for name in ROOMS if f"tests/{name}" in found] == []


@pytest.mark.parametrize("name", ["test_exporting.py", "cli/test_export.py", "export.py", "test_cli.py"])
def test_other_files_are_no_tests_of_the_core(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tests" / name
    path.parent.mkdir(parents=True)
    path.touch()
    assert core_tests(tmp_path) == []
