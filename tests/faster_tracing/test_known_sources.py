"""The digests of torch's functions."""

from __future__ import annotations

import pytest
import torch

from fx_onnx.faster_tracing.known_sources import KNOWN_SOURCES
from fx_onnx.faster_tracing.replacement import digest
from fx_onnx.torch_internals.version import NEWEST_TORCH
from tools import known_sources

INSTALLED = ".".join(torch.__version__.split(".")[:2])
VERSIONS = {version for digests in KNOWN_SOURCES.values() for version in digests}


@pytest.mark.skipif(INSTALLED not in VERSIONS, reason="its digests are not recorded, so that torch's functions run")
def test_the_digests_are_those_of_the_installed_torch() -> None:
    recorded = {path: digests[INSTALLED] for path, digests in KNOWN_SOURCES.items()}
    assert recorded == {path: digest(path) for path in KNOWN_SOURCES}


def test_every_function_is_known_in_the_same_versions() -> None:
    assert NEWEST_TORCH in VERSIONS
    assert [path for path, digests in KNOWN_SOURCES.items() if digests.keys() != VERSIONS] == []


def test_the_file_is_what_the_tool_writes() -> None:
    assert known_sources.FILE.read_text(encoding="utf-8") == known_sources.text_of(KNOWN_SOURCES)
