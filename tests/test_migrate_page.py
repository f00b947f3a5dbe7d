"""docs/migrate.md has a row for each keyword of torch.onnx.export, with its defaults there and here."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import fx_onnx
from fx_onnx.compat.removed_keywords import REMOVED

PAGE = (Path(__file__).parents[1] / "docs" / "migrate.md").read_text("utf-8")

_SIGNATURE = {
    "args": "()", "f": "None", "kwargs": "None", "verbose": "None", "input_names": "None", "output_names": "None",
    "opset_version": "None", "dynamo": "True", "external_data": "True", "dynamic_shapes": "None",
    "custom_translation_table": "None", "report": "False", "optimize": "True", "verify": "False", "profile": "False",
    "dump_exported_program": "False", "artifacts_dir": '"."', "export_params": "True",
    "keep_initializers_as_inputs": "False", "dynamic_axes": "None", "training": "EVAL", "operator_export_type": "ONNX",
    "do_constant_folding": "True", "custom_opsets": "None", "export_modules_as_functions": "False",
    "autograd_inlining": "True",
}  # fmt: skip
RECORDED = {
    "2.13": {"model": "", **_SIGNATURE},
    "2.14": {"model": "", **_SIGNATURE},
    "2.15": {"model": "", **_SIGNATURE},
}
"""The parameters of torch.onnx.export with their defaults, by the version of torch from which they were read."""


def text(default: Any) -> str:
    """Returns a default as the page shows it: a member of an enumeration by its name."""
    if default is inspect.Parameter.empty:
        return ""
    return str(getattr(default, "name", None) or (f'"{default}"' if isinstance(default, str) else default))


def defaults(function: Any) -> dict[str, str]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: text(p.default) for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def table(heading: str) -> list[list[str]]:
    """Returns the cells of the first table under a heading, without its two first lines."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@pytest.mark.skipif(".".join(torch.__version__.split(".")[:2]) not in RECORDED, reason="no signature is recorded")
def test_the_recorded_signature_is_that_of_the_installed_torch() -> None:
    assert defaults(torch.onnx.export) == RECORDED[".".join(torch.__version__.split(".")[:2])]


@pytest.mark.parametrize("version", RECORDED)
def test_the_table_has_the_keywords_and_defaults_of_each_version(version: str) -> None:
    rows = {row[0].strip("`"): row[1] for row in table("Keywords")}
    own, of_torch = defaults(fx_onnx.export), RECORDED[version]
    assert list(rows) == list(of_torch)
    for name, cell in rows.items():
        shown = re.findall("`(.*?)`", cell) or [""]
        expected = [of_torch[name]] if own[name] == of_torch[name] else [of_torch[name], own[name]]
        assert shown == expected, name


def test_every_row_says_something_about_both() -> None:
    assert [row[0] for row in table("Keywords") if len(row) != 4 or not all((row[0], row[2], row[3]))] == []


def test_the_table_of_removed_keywords() -> None:
    assert [row[0].strip("`") for row in table("Removed keywords")] == list(REMOVED)


def test_the_table_of_fallbacks_has_every_mode() -> None:
    modes = [row[0].strip("`") for row in table("Operators without an ONNX form")]
    assert modes == ["ONNX", "ONNX_FALLTHROUGH", "ONNX_ATEN_FALLBACK", "ONNX_ATEN"]
