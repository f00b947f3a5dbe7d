"""The names of torch.onnx's older interface at the top of the package: "change the import" holds."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import torch.onnx.verification

import fx_onnx
from fx_onnx.extension_points.rooms import TABLE

MOVED = [
    ("fx_onnx.pretrained.tasks", "Task"),
    ("fx_onnx.pretrained.layouts", "Layout"),
]
NAMES = (*TABLE["fx_onnx"], *TABLE["modules"])


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
from fx_onnx.ops import rotary_embedding
from fx_onnx.errors import UnsupportedOperatorError
import fx_onnx.errors, torch
assert fx_onnx.ops is torch.onnx.ops and rotary_embedding is torch.onnx.ops.rotary_embedding
assert UnsupportedOperatorError is fx_onnx.UnsupportedOperatorError is fx_onnx.errors.UnsupportedOperatorError
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_verification_has_the_names_of_torch() -> None:
    assert set(torch.onnx.verification.__all__) <= set(fx_onnx.verification.__all__)
    assert [name for name in fx_onnx.verification.__all__ if not hasattr(fx_onnx.verification, name)] == []


@pytest.mark.parametrize(("path", "name"), MOVED)
def test_a_moved_module_names_the_new_path(path: str, name: str) -> None:
    """The documentation of version 0.2 names these paths."""
    with pytest.warns(DeprecationWarning, match=f"fx_onnx 0.4 will not have {path}; use fx_onnx.{name}") as found:
        assert getattr(importlib.import_module(path), name) is getattr(fx_onnx, name)
    assert found[0].filename == __file__


def test_the_forms_of_import_of_a_moved_module() -> None:
    """In a new process, in which a warning is an error."""
    code = """
import fx_onnx.pretrained.tasks
from fx_onnx import pretrained
from fx_onnx.pretrained import layouts, tasks
assert fx_onnx.pretrained.tasks is tasks and not hasattr(layouts, "nothing")
try:
    tasks.TASKS
except DeprecationWarning as warning:
    assert str(warning).endswith("use fx_onnx.applications.tasks.TASKS.")
    print("warned")
"""
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "warned\n", done.stderr
