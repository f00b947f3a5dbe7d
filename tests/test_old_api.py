"""The names of torch.onnx's older interface at the top of the package: "change the import" holds."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch.onnx.verification

import fx_onnx
from fx_onnx.extension_points.rooms import TABLE

NAMES = tuple(TABLE["fx_onnx"])


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_an_attribute(name: str) -> None:
    assert getattr(fx_onnx, name) is not None
    assert name in dir(fx_onnx)


def test_the_forms_of_import() -> None:
    """Each statement is one of torch.onnx with another import, in a new process."""
    code = """
import sys
import fx_onnx as onnx_exporter
assert not {"onnx", "onnxruntime", "fx_onnx.compat"} & set(sys.modules)
from fx_onnx.symbolic_helper import parse_args
from fx_onnx import verification
from fx_onnx.verification import find_mismatch
import fx_onnx.utils
assert onnx_exporter.symbolic_helper.parse_args is parse_args
from fx_onnx.symbolic_helper import *
assert cast_pytorch_to_onnx["Long"] == 7
assert verification.find_mismatch is find_mismatch
assert fx_onnx.utils.register_custom_op_symbolic is onnx_exporter.register_custom_op_symbolic
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_verification_has_the_names_of_torch() -> None:
    assert set(torch.onnx.verification.__all__) <= set(fx_onnx.verification.__all__)
    assert [name for name in fx_onnx.verification.__all__ if not hasattr(fx_onnx.verification, name)] == []
