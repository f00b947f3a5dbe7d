"""Every task is run in each client that has a class for it, and docs/applications.md lists the models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.application_cases import IN_JS, IN_OPTIMUM, WITHOUT, cases_of
from fx_onnx.applications.tasks import TASKS


@pytest.mark.parametrize("client", [IN_OPTIMUM, IN_JS])
@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_a_case_or_a_reason(task: str, client: str) -> None:
    assert bool(cases_of(task, client)) != bool(WITHOUT.get(task, {}).get(client))


def test_the_page_lists_the_cases() -> None:
    page = (Path(__file__).parents[1] / "docs" / "applications.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (both|optimum-onnx|transformers\.js)(?: [\d.]+)? \| (.+) \|$", page, re.M)
    listed = {client: set(models.split(", ")) for client, models in rows}
    for client in (IN_OPTIMUM, IN_JS):
        names = {name.replace(",", " in") for task in TASKS for name in cases_of(task, client)}
        assert listed["both"] | listed[client] == names
