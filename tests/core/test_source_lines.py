"""Messages name lines of the user or of a library, never of torch, of fx_onnx or of Python."""

from __future__ import annotations

import json
import traceback

import onnx
import pytest
import torch

import fx_onnx.export
from fx_onnx.core.source_lines import innermost_line, is_internal, line_text


@pytest.mark.parametrize(
    ("file", "internal"),
    [
        (__file__, False),
        (onnx.__file__, False),
        (torch.__file__, True),
        (fx_onnx.export.__globals__["__file__"], True),
        (json.__file__, True),
        ("<string>", True),
    ],
)
def test_which_files_are_internal(file: str, internal: bool) -> None:
    assert is_internal(file) is internal


def test_a_line_has_its_code_and_a_short_path() -> None:
    assert line_text(__file__, 3) == f"({__file__}:3: from __future__ import annotations)"
    assert (
        line_text("/env/lib/python3.11/site-packages/library/model.py", 7, " call(x)")
        == "(library/model.py:7: call(x))"
    )
    assert line_text("nowhere.py", 7) == "(nowhere.py:7)"


def test_the_innermost_line_is_not_internal() -> None:
    frames = [traceback.FrameSummary(__file__, 3, "f"), traceback.FrameSummary(torch.__file__, 5, "g")]
    assert innermost_line(frames) == line_text(__file__, 3)
    assert innermost_line(frames[1:]) == ""
