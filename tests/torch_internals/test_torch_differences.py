"""Each row of the table of differences is used, and about a version in the window."""

from __future__ import annotations

import re

import pytest
import torch

from fx_onnx.torch_internals.torch_differences import DIFFERENCES, has, newer_than, older_than
from fx_onnx.torch_internals.version import NEWEST_TORCH, OLDEST_TORCH
from tests.sources import sources


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_row_is_about_a_supported_version(name: str) -> None:
    assert _numbers(OLDEST_TORCH) < _numbers(DIFFERENCES[name].until) <= _numbers(NEWEST_TORCH)


def test_every_row_is_used_and_every_use_has_a_row() -> None:
    uses = {
        use for source in sources() for use in re.findall(r'\b(?:has|newer_than|older_than)\("([^"]+)"\)', source.text)
    }
    assert uses == DIFFERENCES.keys()


def test_nothing_else_compares_the_version_of_torch() -> None:
    """The check of the version, and the table itself, are the only readers."""
    readers = {
        source.name for source in sources() if re.search(r"torch\.__version__ *[<>=]|TorchVersion\(torch", source.text)
    }
    assert readers == {"fx_onnx/torch_internals/torch_differences.py"}


@pytest.mark.parametrize(("installed", "expected"), [("2.12.1+cu130", True), ("2.13.0", False), ("2.15.0a0", False)])
def test_versions_before_a_row_have_the_difference(
    installed: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", installed)
    has.cache_clear()
    assert has("no compile session") == expected
    has.cache_clear()
    assert (newer_than("no compile session"), older_than("no compile session")) == ("torch>=2.13", "torch<2.13")
