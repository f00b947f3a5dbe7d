"""Prints the tests of the files that changed, for ``make check``.

    python tools/changed_tests.py [BASE]

A file counts as changed if it differs from the merge base with BASE (default: main), or if git does not track it yet.
The tests of ``fx_onnx/passes/cleanup/shapes.py`` are ``tests/passes/cleanup/test_shapes.py`` and
``test_shapes_*.py``. The tests of a helper, whose name begins with an underscore, are those of the files in its
folder that import it. End-to-end tests are left to ``make test``, because each takes minutes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {"fx_onnx": "tests", "decompositions": "tests/decompositions", "tools": "tests/tools"}
SLOW = "tests/end_to_end/"


def main(arguments: list[str]) -> None:
    """Prints the paths of the tests, one a line."""
    base = arguments[0] if arguments else "main"
    for test in find_tests(changed_files(ROOT, base), ROOT):
        print(test)


def changed_files(root: Path, base: str) -> list[str]:
    """Returns the changed files, relative to the root of the repository.

    Without a branch ``base``, as in a shallow clone, the comparison is with HEAD.
    """
    since = _git(root, "merge-base", "HEAD", base) or ["HEAD"]
    changed = _git(root, "diff", "--name-only", "--diff-filter=d", since[0])
    return sorted({*changed, *_git(root, "ls-files", "--others", "--exclude-standard")})


def _git(root: Path, *arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout.split()


def find_tests(files: Iterable[str], root: Path) -> list[str]:
    """Returns the tests of the files, sorted; a file without a test contributes nothing."""
    found = {test for file in files for test in _find_tests(file, root)}
    return sorted(test for test in found if not test.startswith(SLOW))


def _find_tests(file: str, root: Path) -> Iterator[str]:
    path = Path(file)
    if path.suffix == ".md":
        yield "tests/test_docs.py"
    elif path.parts[0] == "tests" and path.match("test_*.py"):
        yield file
    elif path.parts[0] in SOURCES and path.suffix == ".py":
        for source in _importers(path, root) if path.stem.startswith("_") else [path]:
            folder = root / SOURCES[source.parts[0]] / Path(*source.parent.parts[1:])
            tests = [*folder.glob(f"test_{source.stem.lstrip('_')}.py"), *folder.glob(f"test_{source.stem}_*.py")]
            yield from (test.relative_to(root).as_posix() for test in tests)


def _importers(helper: Path, root: Path) -> list[Path]:
    """Returns a helper, and the files of its folder that import it."""
    word = re.compile(rf"\b(import|from)\b.*\b{helper.stem}\b")
    files = [path for path in (root / helper.parent).glob("*.py") if word.search(path.read_text(encoding="utf-8"))]
    return [helper, *(path.relative_to(root) for path in files)]


if __name__ == "__main__":
    main(sys.argv[1:])
