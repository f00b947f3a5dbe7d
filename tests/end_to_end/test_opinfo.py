"""PyTorch's own operator tests through the exporter: one or two samples of each operator, static and dynamic.

All operators are tested in float32, and each in half of its other dtypes. The known failures are listed in
tests/opinfo/failures.py with their reasons. An operator with a strict entry must fail; if it begins to pass, the entry
must be removed. The others depend on rounding and are not run. `python -m tools.coverage` tests more samples and writes
docs/coverage.md.
"""

import re
import zlib
from pathlib import Path

import pytest
import torch

from tests.opinfo.failures import FAILURES, expected_failure
from tests.opinfo.sweep import DTYPES, Entry, Outcome, entries, outcomes
from tests.torch_versions import needs

COVERAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
MANY = 4
"""The number of samples that tools/coverage.py runs: a known failure may be in any of them."""

STATIC = [
    entry
    for turn, dtype in enumerate(DTYPES)
    for entry in entries(dtype)
    if dtype == torch.float32 or expected_failure(entry) is not None or (turn + zlib.crc32(entry.name.encode())) % 2
]
DYNAMIC = entries(torch.float32, dynamic=True)


@pytest.mark.parametrize("entry", [*STATIC, *DYNAMIC], ids=str)
def test_operator(entry: Entry) -> None:
    """Tests that the exported model equals eager in values, shapes and dtypes; with dynamic dims, at two sizes."""
    known = expected_failure(entry)
    if known is not None:
        assert not known.strict or _first_failure(entry, MANY) is not None, (
            f"{entry} passes: remove it from failures.py"
        )
        pytest.xfail(known.reason)
    found = list(outcomes(entry, 2 if entry.dtype == torch.float32 and not entry.dynamic else 1))
    failures = [each for each in found if each.stage not in ("right", "skipped")]
    assert not failures, f"{failures[0].stage}: {failures[0].reason}"
    if found and all(each.stage == "skipped" for each in found):
        pytest.skip(found[0].reason[:120])


def _first_failure(entry: Entry, count: int) -> Outcome | None:
    return next((each for each in outcomes(entry, count) if each.stage not in ("right", "skipped")), None)


@needs("OpInfo of native_group_norm")
def test_known_failures_are_of_operators_that_exist() -> None:
    names = {entry.name for dtype in DTYPES for entry in entries(dtype)}
    assert not [name for failure in FAILURES for name in failure.names if name not in names]


def test_coverage_lists_every_known_failure() -> None:
    """Tests that docs/coverage.md lists the same operators; `python -m tools.coverage` rewrites it."""
    listed = set(re.findall(r"^\| `([^`]+)`", COVERAGE.read_text(), flags=re.MULTILINE))
    assert listed == {name for failure in FAILURES for name in failure.names}
