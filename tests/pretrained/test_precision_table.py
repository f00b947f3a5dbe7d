"""The table of precisions, and the choice of a layout and its precisions."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fx_onnx.core.errors import ArgumentError
from fx_onnx.pretrained.layouts import choose


def test_the_tables_are_read_without_torch() -> None:
    text = "import sys; from fx_onnx.pretrained import layouts, precision_table; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_precision_of_4_bits_needs_an_opset_with_blocks() -> None:
    assert choose("genai", "q4", 21)[1] == ("q4",)
    with pytest.raises(ArgumentError, match="The precision q4 needs opset 21 or above, not 20"):
        choose("genai", ["fp32", "q4"], 20)
