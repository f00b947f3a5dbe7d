"""Hooks of mkdocs: README.md, CONTRIBUTING.md and CHANGELOG.md become pages of the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""The pages at the root of the repository, and their names on the site."""


_LINK_OR_CODE = re.compile(
    r"\[(?P<text>[^\]]*)\]\((?P<path>[^):#\s]+)(?P<anchor>#[^)\s]*)?\)|^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL
)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages at the root of the repository."""
    from mkdocs.structure.files import File

    for source, name in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, name, content=site_links(text, "")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites the links of a page under docs/."""
    return markdown if page.file.generated_by else site_links(markdown, "docs")


def on_page_content(html: str, **_: Any) -> str:
    """Makes links of the pages that docstrings name, such as docs/migrate.md."""
    return re.sub(r"(?<![\w/\"])docs/(\w+)\.md\b", r'<a href="\1.html">\1</a>', html)


def site_links(markdown: str, folder: str) -> str:
    """Returns the text with links that work on the site.

    Links among the pages lead to the pages of the site. A link to a file outside of docs/, such as a source file,
    becomes its text, because the site does not contain the file.

    Args:
        markdown: the text of a page.
        folder: the page's folder, relative to the root of the repository; empty for the root.
    """

    def replace(match: re.Match[str]) -> str:
        text, path, anchor = match["text"], match["path"], match["anchor"] or ""
        if path is None:  # code
            return match[0]
        target = posixpath.normpath(posixpath.join(folder, path))
        if target in PAGES:
            return f"[{text}]({PAGES[target]}{anchor})"
        if target.startswith("docs/"):
            return f"[{text}]({target.removeprefix('docs/')}{anchor})"
        return text

    return _LINK_OR_CODE.sub(replace, markdown)
