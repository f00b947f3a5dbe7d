"""The digests of torch's functions."""

from __future__ import annotations

import torch

from fx_onnx.faster_tracing.known_sources import KNOWN_SOURCES
from fx_onnx.faster_tracing.replacement import digest
from fx_onnx.torch_internals.version import NEWEST_TORCH, OLDEST_TORCH
from tools import known_sources


def test_the_digests_are_those_of_the_installed_torch() -> None:
    version = ".".join(torch.__version__.split(".")[:2])
    assert {path: digests.get(version) for path, digests in KNOWN_SOURCES.items()} == {
        path: digest(path) for path in KNOWN_SOURCES
    }


def test_each_tested_version_is_known() -> None:
    assert [path for path, digests in KNOWN_SOURCES.items() if not {OLDEST_TORCH, NEWEST_TORCH} <= digests.keys()] == []


def test_the_file_is_what_the_tool_writes() -> None:
    assert known_sources.FILE.read_text(encoding="utf-8") == known_sources.text_of(KNOWN_SOURCES)
