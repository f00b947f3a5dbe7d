"""The table of rooms: what it finds, and what it says where a folder is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fx_onnx
from fx_onnx.extension_points.rooms import find, is_installed, module_of
from fx_onnx.messages.errors import MissingPackageError

# In a new process, because this one has imported the rooms.
LOADED = """
import sys
import torch
import tests.torchvision_cpu
import fx_onnx
from fx_onnx.extension_points.rooms import ROOMS
from tests.extension_points.ordinary_models import MODELS

for name in sys.argv[1:]:
    model, args = MODELS[name]()
    fx_onnx.export(model, args)
files = [name for name, module in sys.modules.items() if getattr(module, "__file__", None)]  # others are stand-ins
loaded = [name for name in files if name.startswith("fx_onnx.")]
others = [name for name in loaded if not name.startswith("fx_onnx.faster_tracing")]
print(len(others), *sorted({name.split(".")[1] for name in loaded} & ROOMS.keys()))
"""


ORDINARY = {"linear resnet encoder decoder": set(), "llama": {"libraries"}}
ALWAYS = {"faster_tracing"}


@pytest.mark.parametrize(("models", "rooms"), ORDINARY.items())
def test_ordinary_exports_load_no_other_room(models: str, rooms: set[str]) -> None:
    command = [sys.executable, "-W", "ignore", "-c", LOADED, *models.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    if "No module named 'transformers'" in done.stderr:
        pytest.skip("transformers is not installed")
    assert done.returncode == 0, done.stderr
    count, *found = done.stdout.split()
    assert set(found) == rooms | ALWAYS
    assert int(count) <= 270


def test_a_row_is_imported_when_it_is_found() -> None:
    assert find("fx_onnx", "rule") is fx_onnx.rule
    assert not is_installed("nothing")


def test_a_missing_folder_is_named() -> None:
    with pytest.raises(MissingPackageError, match="has no folder report, which writes reports; install fx_onnx again"):
        module_of("fx_onnx.report.nothing")
    with pytest.raises(ModuleNotFoundError, match="nothing"):  # a folder of the core
        module_of("fx_onnx.passes.nothing")
