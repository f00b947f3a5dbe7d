"""The package, its metadata and the exported models agree on one version."""

import tomllib
from pathlib import Path

import torch
from torch import nn

import fx_onnx
from fx_onnx.core.version import version

ROOT = Path(__file__).parents[2]


def test_the_version_is_that_of_pyproject() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert version() == fx_onnx.__version__ == declared


def test_a_model_names_its_producer() -> None:
    model = fx_onnx.export(nn.ReLU().eval(), (torch.ones(2),)).model
    assert (model.producer_name, model.producer_version) == ("fx_onnx", fx_onnx.__version__)
