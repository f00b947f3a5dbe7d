"""The index of the decompositions is that of the files."""

from __future__ import annotations

from fx_onnx.decompositions import DECOMPOSITIONS, load
from fx_onnx.decompositions._index import FILES
from tools.decomposition_index import text


def test_the_index_is_that_of_the_files() -> None:
    """``python -m tools.decomposition_index`` writes it. Another torch may have more operators or fewer."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    exec(text(), found)  # type: ignore[arg-type]
    assert {name: files for name, files in found["FILES"].items() if FILES.get(name, files) != files} == {}
    assert len(found["FILES"].keys() - FILES.keys()) < 10


def test_an_operator_that_the_index_lacks_is_found() -> None:
    load("aten::nothing")
    assert len(DECOMPOSITIONS) > 300
