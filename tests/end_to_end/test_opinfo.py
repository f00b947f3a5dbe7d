"""PyTorch's own operator tests through the exporter: a sample or two of each operator and way of capture.

All operators are tested in float32, and in half of the other dtypes that they take: neighbours in DTYPES in turn.
What is known to fail is listed in tests/opinfo/failures.py with the reason, and must fail: an entry that begins to pass
is to be taken out. `python -m tools.coverage` takes more samples and writes docs/coverage.md.
"""

import re
import zlib
from pathlib import Path

import pytest
import torch

from tests.opinfo.failures import FAILURES, reason
from tests.opinfo.sweep import DTYPES, Entry, Outcome, entries, outcomes

COVERAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
MANY = 4
"""As many samples as tools/coverage.py takes: a known failure is one of some of these."""

STATIC = [
    entry
    for turn, dtype in enumerate(DTYPES)
    for entry in entries(dtype)
    if dtype == torch.float32 or reason(entry) is not None or (turn + zlib.crc32(entry.name.encode())) % 2
]
DYNAMIC = entries(torch.float32, dynamic=True)


@pytest.mark.parametrize("entry", [*STATIC, *DYNAMIC], ids=str)
def test_operator(entry: Entry) -> None:
    """Exported and loaded, equal to eager in values, shapes and dtypes; dynamic dims at two sizes."""
    known = reason(entry)
    if known is not None:
        assert _first_failure(entry, MANY) is not None, f"{entry} is right now: take it out of failures.py"
        pytest.xfail(known)
    found = list(outcomes(entry, 2 if entry.dtype == torch.float32 and not entry.dynamic else 1))
    failures = [each for each in found if each.stage not in ("right", "skipped")]
    assert not failures, f"{failures[0].stage}: {failures[0].reason}"
    if found and all(each.stage == "skipped" for each in found):
        pytest.skip(found[0].reason[:120])


def _first_failure(entry: Entry, count: int) -> Outcome | None:
    return next((each for each in outcomes(entry, count) if each.stage not in ("right", "skipped")), None)


def test_known_failures_are_of_operators_that_exist() -> None:
    names = {entry.name for dtype in DTYPES for entry in entries(dtype)}
    assert not [name for failure in FAILURES for name in failure.names if name not in names]


def test_coverage_tells_every_known_failure() -> None:
    """docs/coverage.md is of this list: written anew when it changes."""
    told = set(re.findall(r"^\| `([^`]+)`", COVERAGE.read_text(), flags=re.MULTILINE))
    assert told == {name for failure in FAILURES for name in failure.names}
