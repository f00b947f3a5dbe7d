"""``fx-onnx versions``."""

from __future__ import annotations

import json
from importlib import metadata

import pytest
from typer.testing import CliRunner

from fx_onnx.cli import versions
from fx_onnx.cli.app import app


def test_text_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> str:
        raise versions.PackageNotFoundError

    lines = CliRunner().invoke(app, ["versions"]).output.splitlines()
    assert f"torch {metadata.version('torch')}" in lines  # some wheels have the version of CUDA in ``__version__`` only
    monkeypatch.setattr(versions, "package_version", absent)
    assert "torch is not installed" in CliRunner().invoke(app, ["versions"]).output
    assert json.loads(CliRunner().invoke(app, ["versions", "--json"]).output)["torch"] is None
