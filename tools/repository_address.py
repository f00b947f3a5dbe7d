"""Writes the address of the repository into the files of a release, for PyPI's page.

    python tools/repository_address.py https://github.com/OWNER/NAME v0.2.0

pyproject.toml gets ``project.urls``, and the relative links of README.md become addresses at the tag. A checkout has no
address, because the same commit may be in several repositories: the release workflow knows the one that publishes it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

URLS = """
[project.urls]
Repository = "{0}"
Documentation = "{0}/blob/{1}/docs/start.md"
Changelog = "{0}/blob/{1}/CHANGELOG.md"
Issues = "{0}/issues"
Security = "{0}/security/policy"
"""


def main(address: str, tag: str, folder: Path = Path()) -> None:
    """Changes both files in a folder; see the docstring of the module."""
    project, readme = folder / "pyproject.toml", folder / "README.md"
    text = project.read_text("utf-8")
    if "[project.urls]" in text:
        sys.exit("pyproject.toml has project.urls already.")
    project.write_text(text + URLS.format(address, tag), encoding="utf-8")
    readme.write_text(absolute(readme.read_text("utf-8"), address, tag), encoding="utf-8")


def absolute(text: str, address: str, tag: str) -> str:
    """Returns Markdown whose relative links are addresses: of the file for images, of its page for others."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found[1].endswith(".png") else "blob"
        return f"]({address}/{kind}/{tag}/{found[1]})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)]+)\)", link, text)


if __name__ == "__main__":
    main(*sys.argv[1:3])
