"""Tests of the records of the tasks."""

from __future__ import annotations

import pytest
import transformers

from fx_onnx.applications.layouts import LAYOUTS
from fx_onnx.applications.tasks import TASKS, rows_of


@pytest.mark.parametrize("task", TASKS)
def test_every_row_has_a_class_of_transformers(task: str) -> None:
    for name, row in rows_of(task):
        found = getattr(transformers, row.auto)
        assert name == task and (hasattr(found, "_model_mapping") or found.config_class) and row.outputs


def test_layouts_name_their_files_once() -> None:
    for layout in LAYOUTS.values():
        others = [file for part, file in layout.files.items() if part != "decoder"]
        assert len(set(others)) == len(others)
