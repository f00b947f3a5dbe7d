"""Tests of what the release workflow writes into README.md and pyproject.toml."""

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.sources import ROOT
from tools.repository_address import absolute, main

ADDRESS = "https://example.org/fx"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/a.md#b)", f"[a]({ADDRESS}/blob/v1/docs/a.md#b)"),
        ("![a](docs/a.png)", f"![a]({ADDRESS}/raw/v1/docs/a.png)"),
        ("[a](https://onnx.ai) [b](#c)", "[a](https://onnx.ai) [b](#c)"),
        ("[a\nb](LICENSE)", f"[a\nb]({ADDRESS}/blob/v1/LICENSE)"),
    ],
)
def test_links(text: str, expected: str) -> None:
    assert absolute(text, ADDRESS, "v1") == expected


def test_the_files_of_this_repository(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    main(ADDRESS, "v1", tmp_path)
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert urls["Changelog"] == f"{ADDRESS}/blob/v1/CHANGELOG.md"
    assert "](docs/" not in (tmp_path / "README.md").read_text("utf-8")
    with pytest.raises(SystemExit, match="already"):
        main(ADDRESS, "v1", tmp_path)
