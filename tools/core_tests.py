"""Prints the tests of the core, for ``make test-core``: those of each folder and file that is no room.

python -m tools.core_tests
"""

from __future__ import annotations

from pathlib import Path

from tests.test_architecture import CORE

ROOT = Path(__file__).parents[1]


def core_tests(root: Path = ROOT) -> list[str]:
    """Returns the folders of tests, and the files at the top, relative to the root of the repository."""
    tests = root / "tests"
    found = [path for name in CORE for path in (tests / name, *tests.glob(f"test_{name}.py")) if path.exists()]
    found += [path for name in CORE for path in tests.glob(f"test_{name}_*.py")]
    return sorted(path.relative_to(root).as_posix() for path in found)


if __name__ == "__main__":
    print("\n".join(core_tests()))
