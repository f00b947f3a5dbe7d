"""python -m tools.operator: which part of fx_onnx or torch exports an operator."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from fx_onnx.torch_internals.torch_private import OpOverload
from tools import operator

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("target", "opset", "expected"),
    [
        (aten.addcmul.default, 18, ["translation: aten_addcmul (fx_onnx/translations/arithmetic.py:"]),
        (
            aten.scaled_dot_product_attention.default,
            23,
            ["translation: aten_scaled_dot_product_attention (", "decomposition of fx_onnx: "],
        ),
        (
            aten.scaled_dot_product_attention.default,
            20,
            ["translation from opset 23: aten_scaled_dot_product_attention (", "decomposition of fx_onnx: "],
        ),
        (aten.logaddexp2.default, 18, ["decomposition of fx_onnx: logaddexp2 (decompositions/unary.py:"]),
        (aten.hstack.default, 18, ["decomposition of torch: a kernel in C++"]),
        (aten.rot90.default, 18, ["decomposition of torch: rot90 ("]),
        (aten.add_.Tensor, 18, ["functionalization: "]),
        (aten.sym_size.int, 18, ["no tensor in the result"]),
        (aten.bartlett_window.default, 18, ["constant folding: torch computes it"]),
        (aten._cdist_backward.default, 18, []),
    ],
    ids=lambda value: str(value),
)
def test_handlers(target: OpOverload, opset: int, expected: list[str]) -> None:
    found = [_in_repository(line) for line in operator.handlers(target, opset)]
    if not expected:
        assert not found
    for start in expected:
        assert any(line.startswith(start) for line in found), found


def test_a_condition_is_named() -> None:
    (line, *_) = operator.handlers(aten.celu.default, 18)
    assert "for calls that _is_float32 (fx_onnx/translations/activation.py:" in line


def test_complex_decompositions_are_named() -> None:
    assert any(line.startswith("for complex tensors: ") for line in operator.handlers(aten.matmul.default, 18))


@pytest.mark.parametrize("name", ["aten.addcmul.default", "torch.ops.aten.addcmul.default", "aten::addcmul.default"])
def test_names(name: str) -> None:
    assert operator.overloads(name) == [aten.addcmul.default]


def test_all_overloads_of_an_operator() -> None:
    assert {aten.add.Tensor, aten.add.Scalar} <= set(operator.overloads("aten.add"))


def test_the_command_prints_and_returns_a_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["operator", "aten.addcmul.default", "--opset", "20"])
    assert operator.main() == 0
    assert "aten.addcmul.default at opset 20\n  translation: aten_addcmul" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["operator", "aten._cdist_backward.default"])
    assert operator.main() == 1
    assert "nothing: the export fails" in capsys.readouterr().out


def test_missing_operators_are_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["operator", "--missing", "--opset", "20"])
    assert operator.main() == 0
    listed = capsys.readouterr().out.split()
    assert "aten._cdist_backward.default" in listed
    assert not {"aten.relu.default", "aten.relu_.default", "aten.bartlett_window.default", "aten.hstack.default"} & {
        *listed
    }
    monkeypatch.setattr(sys, "argv", ["operator"])
    with pytest.raises(SystemExit):
        operator.main()
    assert "name an operator, or give --missing" in capsys.readouterr().err


def test_an_unknown_operator_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["operator", "aten.no_such_operator"])
    with pytest.raises(SystemExit):
        operator.main()
    assert "this torch has no operator aten.no_such_operator" in capsys.readouterr().err


def test_the_example_of_the_documentation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Line numbers are left out, because they change with every edit."""
    page = (Path(__file__).parents[1] / "docs" / "add_an_op.md").read_text("utf-8")
    ((command, example),) = re.findall(r"^    \$ python -m tools\.(.*)\n((?:    .*\n)+)", page, re.M)
    monkeypatch.setattr(sys, "argv", command.split())
    assert operator.main() == 0
    printed = _in_repository(capsys.readouterr().out)
    assert _without_line_numbers(printed) == _without_line_numbers(textwrap.dedent(example))


def _without_line_numbers(text: str) -> str:
    return re.sub(r"\.py:\d+", ".py", text)


def _in_repository(text: str) -> str:
    """Returns the text with paths as in the repository; an installed package includes the decompositions."""
    return text.replace("fx_onnx/decompositions/", "decompositions/")
