"""The package, its metadata and the exported models agree on one version, and on the versions of torch."""

import re
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx.torch_internals.version import NEWEST_TORCH, OLDEST_TORCH, check_torch, version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_that_of_pyproject() -> None:
    assert version() == fx_onnx.__version__ == PROJECT["version"]


def test_a_model_names_its_producer() -> None:
    model = fx_onnx.export(nn.ReLU().eval(), (torch.ones(2),)).model
    assert (model.producer_name, model.producer_version) == ("fx_onnx", fx_onnx.__version__)


@pytest.fixture
def checked_anew() -> Iterator[None]:
    """Makes the next export check torch's version, and the one after the test."""
    check_torch.cache_clear()
    yield
    check_torch.cache_clear()


def _export() -> None:
    fx_onnx.export(nn.ReLU().eval(), (torch.ones(2),))


def test_the_versions_of_torch_are_those_of_pyproject() -> None:
    (bounds,) = (re.findall(r"[\d.]+", each) for each in PROJECT["dependencies"] if re.match(r"torch\W", each))
    major, minor = NEWEST_TORCH.split(".")
    assert bounds == [OLDEST_TORCH, f"{major}.{int(minor) + 1}"]


@pytest.mark.parametrize("installed", ["2.10.0", "1.13.0+cpu"])
def test_an_older_torch_is_refused_in_one_sentence(
    installed: str, monkeypatch: pytest.MonkeyPatch, checked_anew: None
) -> None:
    monkeypatch.setattr(torch, "__version__", installed)
    for _ in range(2):
        with pytest.raises(
            fx_onnx.OnnxExporterError, match=rf"needs torch 2\.11 or newer, but torch {re.escape(installed)} is"
        ):
            _export()


@pytest.mark.parametrize("installed", ["2.16.0", "3.0.0a0+git1234567"])
def test_a_newer_torch_is_a_warning_at_the_first_export(
    installed: str, monkeypatch: pytest.MonkeyPatch, checked_anew: None
) -> None:
    monkeypatch.setattr(torch, "__version__", installed)
    with pytest.warns(
        fx_onnx.OnnxExporterWarning, match=rf"2\.11 to 2\.15, but torch {re.escape(installed)} is"
    ) as found:
        _export()
        _export()
    assert [Path(each.filename) for each in found] == [Path(__file__)]


@pytest.mark.parametrize("installed", [f"{OLDEST_TORCH}.0", f"{NEWEST_TORCH}.9+cu130"])
def test_a_tested_torch_is_no_warning(installed: str, monkeypatch: pytest.MonkeyPatch, checked_anew: None) -> None:
    monkeypatch.setattr(torch, "__version__", installed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_torch()
