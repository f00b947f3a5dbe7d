"""Checks basic properties of text files, for pre-commit.

    python tools/check_files.py FILE ...

Reports trailing whitespace, a missing final newline, carriage returns, conflict markers and files above 500 KB.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LARGEST = 500_000  # bytes


def main(files: list[str]) -> int:
    """Prints every problem and returns the exit status: 1 if there are problems."""
    found = [f"{file}: {problem}" for file in files for problem in problems(Path(file).read_bytes())]
    for line in found:
        print(line)
    return int(bool(found))


def problems(content: bytes) -> Iterator[str]:
    """Yields what is wrong with the content of a text file."""
    if content and not content.endswith(b"\n"):
        yield "no newline at the end"
    if b"\r" in content:
        yield "carriage return"
    if re.search(rb"[ \t]+$", content, re.MULTILINE):
        yield "trailing whitespace"
    if re.search(rb"^(<{7}|>{7}) ", content, re.MULTILINE):
        yield "conflict marker"
    if len(content) > LARGEST:
        yield f"{len(content)} bytes, more than {LARGEST}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
