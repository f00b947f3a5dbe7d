"""Tests that the report contains the facts that the export reached, and that its file name shows the outcome."""

from datetime import datetime

import pytest

from fx_onnx.core.errors import ArgumentError
from fx_onnx.program.report import DynamicDim, Facts, ModelSummary, StageOutcome, TranslatedOperator, markdown, write
from fx_onnx.program.verify import Difference, Verification

VERSIONS = {"torch": "2.13.0", "onnx": "1.23.0"}
WHEN = datetime(2026, 3, 4, 5, 6, 7, 89)

FAILED = Facts(
    stages=(StageOutcome("capture", 1.25, True), StageOutcome("decompose", 0.5, False), StageOutcome("translate")),
    versions=VERSIONS,
    error="Traceback ...\nUnsupportedOperatorError: ```nested``` fence",
    exported_program="ExportedProgram: x",
    operators_before={"aten.foo.default": 2},
)

GOOD = Difference("y", "float32", (2, 3), 1.5e-6, 2.5e-7, 0, 1e-4, "")
BAD = Difference("z|w", "int64", (), 1.0, 0.5, 0, 0.0, "the largest difference is 1", "layer.0")

COMPLETE = Facts(
    stages=(
        StageOutcome("capture", 1.0, True),
        StageOutcome("verify", note="skipped: verify=False"),
        StageOutcome("save", 0.1, True),
    ),
    versions=VERSIONS,
    exported_program="ExportedProgram: y",
    operators_before={"aten.linear.default": 1},
    operators_after={"aten.addmm.default": 3},
    translated_operators=(TranslatedOperator("aten.addmm.default", "aten_addmm", "fx_onnx/ops/linalg.py:12", 3),),
    model=ModelSummary(
        {"": 18, "local": 1},
        ["x: float[b, 8]"],
        ["y: float[b, 2]"],
        {"Add": 1, "Gemm": 3},
        1234,
        1534,
        {"float": 100, "int8": 1134},
    ),
    dynamic_dims=(DynamicDim("b", "x[0]", "2..inf"), DynamicDim("s", "x[1]", "", "fixed to 8: x.view(-1, 8)")),
    verification=Verification((GOOD, BAD)),
    profile="100 ms total",
)


def test_failure():
    text = markdown(FAILED)
    assert "- [x] capture: 1.250 s\n- [ ] decompose: **failed**, 0.500 s\n- [ ] translate: not reached" in text
    assert "````pytb\nTraceback ...\nUnsupportedOperatorError: ```nested``` fence\n````" in text
    assert "## ONNX model\n\nNot reached." in text
    assert "## Verification\n\nNot reached." in text
    assert "## Translations\n\nNot reached." in text
    assert "| `aten.foo.default` | 2 | not reached |" in text
    assert "## Profile" not in text


def test_success():
    text = markdown(COMPLETE)
    assert "- [ ] verify: skipped: verify=False\n- [x] save: 0.100 s" in text
    assert "## Error" not in text
    assert "| torch | 2.13.0 |" in text
    assert "- opset: ai.onnx 18, local 1\n- input `x: float[b, 8]`\n- output `y: float[b, 2]`" in text
    assert "- parameters: 1,234 (1,534 bytes): int8 1,134, float 100\n- nodes: 4" in text
    assert text.index("| `Gemm` | 3 |") < text.index("| `Add` | 1 |")
    assert "| b | x[0] | 2..inf | dynamic |\n| s | x[1] |  | fixed to 8: x.view(-1, 8) |" in text
    assert "| [x] | `y` | float32[2, 3] | 1.5e-06 | 2.5e-07 | 0 |  |  |" in text
    assert "| [ ] | `z\\|w` | int64[] | 1 | 0.5 | 0 | layer.0 | the largest difference is 1 |" in text
    assert "| `aten.addmm.default` | 0 | 3 |\n| `aten.linear.default` | 1 | 0 |" in text
    assert "| `aten.addmm.default` | 3 | `aten_addmm` | fx_onnx/ops/linalg.py:12 |" in text
    assert "```\n100 ms total\n```" in text
    assert text.isascii()


def test_no_dynamic_dims():
    assert "None: every size is fixed." in markdown(Facts(stages=(), versions={}, dynamic_dims=()))


def test_files(tmp_path):
    folder = tmp_path / "a" / "b"
    assert write(COMPLETE, folder, when=WHEN).name == "onnx_export_2026-03-04_05-06-07-000089_success.md"
    path = write(FAILED, str(folder), when=WHEN)
    assert path.name.endswith("_decompose.md")
    assert path.read_text(encoding="utf-8") == markdown(FAILED)
    unicode = Facts(stages=(), versions={}, error="größer als 2 µs")
    path = write(unicode, folder)
    assert path.name.endswith("_failure.md")
    assert "größer als 2 µs" in path.read_text(encoding="utf-8")


def test_unwritable_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="cannot be written to"):
        write(COMPLETE, tmp_path / "file")
