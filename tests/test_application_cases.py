"""Every task is run in each client that has a class for it, and docs/applications.md shows the results."""

from __future__ import annotations

import pytest

from benchmarks.application_cases import IN_JS, IN_OPTIMUM, WITHOUT, cases_of
from benchmarks.application_models import PAGE
from fx_onnx.applications.tasks import TASKS


@pytest.mark.parametrize("client", [IN_OPTIMUM, IN_JS])
@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_a_case_or_a_reason(task: str, client: str) -> None:
    assert bool(cases_of(task, client)) != bool(WITHOUT.get(task, {}).get(client))


def test_the_page_shows_the_results_of_the_cases() -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = [name for task in TASKS for client in (IN_OPTIMUM, IN_JS) for name in cases_of(task, client)]
    assert not [name for name in found if page.count(f"\n| {name} | ") < found.count(name)]
