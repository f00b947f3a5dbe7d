"""The Markdown report, and the files: their names show the outcome, and both forms have the same facts."""

from datetime import datetime

import pytest
import torch

import fx_onnx
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.program.export_facts import Facts
from fx_onnx.report.markdown_report import markdown, write
from tests.report.facts_examples import COMPLETE, FAILED

WHEN = datetime(2026, 3, 4, 5, 6, 7, 89)


def test_failure():
    text = markdown(FAILED)
    assert text.startswith("# The export failed in the stage decompose.\n\nNo operator \\`foo\\`.\n")
    assert "````\nTraceback ...\nUnsupportedOperatorError: ```nested``` fence\n````" in text
    assert "| decompose | 0.500 (29%) | failed |\n| translate |  | not reached |" in text
    assert "| aten.foo.default | 2 | not reached |" in text
    assert "## Inputs and outputs" not in text


def test_success():
    text = markdown(COMPLETE)
    assert text.startswith("# Exported, but the results differ from those of the module.\n\nz\\|w: the largest")
    assert "- opset: 18, local 1\n- nodes: 4\n- parameters: 1,234 (1.5 kB, int8, float)\n" in text
    assert "- file: m.onnx (12.0 kB) + m.onnx.data (4.2 GB)\n" in text
    assert "```python\nfx_onnx.export(\n    Net(...),\n)\n```" in text
    assert "| input | x | float[b, 8] |\n| output | y | float[b, 2] |" in text
    assert "| b | x.shape[0] | any |  |\n| s | x.shape[1] | fixed at 8 | model.py:3: x.view(-1, 8) |" in text
    assert "| ok | y | float32[2, 3] | 1.5e-06 | 0.0001 | 2.5e-07 | 0 |  |" in text
    assert "| differs | z\\|w | int64[] | 1 | 0 | 0.5 | 0 | the largest difference is 1 |" in text
    assert "| fuse_gelu | optimize | 2 | 14 | 6 | optimize={'fuse_gelu'} |" in text
    assert "| insert_casts | legalize | 1 | 6 | 7 | always runs |" in text
    assert text.index("| Gemm | 3 |") < text.index("| Add | 1 |")
    assert "| enc.0 | 0.250 |" in text
    assert "<summary>Versions</summary>\n\n| package | version |\n| --- | --- |\n| torch | 2.13.0 |" in text
    assert "```\n100 ms total\n```" in text
    assert "<summary>Captured program</summary>\n\n```\nExportedProgram: y\n```" in text


def test_names_are_no_markup():
    text = markdown(Facts(model_name="<b>*x*</b> `y` [a](b) __init__ a_b"))
    assert "- model: &lt;b&gt;\\*x\\*&lt;/b&gt; \\`y\\` [a]\\(b) \\_\\_init\\_\\_ a_b\n" in text


def test_files(tmp_path):
    folder = tmp_path / "a" / "b"
    assert write(COMPLETE, folder, when=WHEN).name == "onnx_export_2026-03-04_05-06-07-000089_success.html"
    path = write(FAILED, str(folder), when=WHEN)
    assert path.name.endswith("_decompose.html")
    assert path.with_suffix(".md").read_text(encoding="utf-8") == markdown(FAILED)
    path = write(Facts(error="größer als 2 µs", message="größer"), folder)
    assert path.name.endswith("_failure.html")
    assert "größer als 2 µs" in path.with_suffix(".md").read_text(encoding="utf-8")


def test_unwritable_folder(tmp_path):
    program = fx_onnx.export(torch.nn.ReLU(), (torch.ones(2),))
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="cannot be written to"):
        write(COMPLETE, tmp_path / "file")
    with pytest.raises(ArgumentError, match="cannot be written to"):
        program.save_html(tmp_path / "no" / "folder.html")
