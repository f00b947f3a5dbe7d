"""The table of patches is complete, small, and gone after a trace."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import fx_onnx
from fx_onnx.capture.patches.applied import PATCHES, Changes, patched_torch
from fx_onnx.capture.patches.patching import Patch, apply_patches
from fx_onnx.messages.source_lines import is_library
from tests.torchvision_cpu import torchvision  # noqa: F401  registers its operators

LIMIT = 54
OLDER = [patch for patch in PATCHES if patch.versions.startswith("torch<") and patch.attribute]


@pytest.mark.parametrize("patch", PATCHES, ids=[patch.target for patch in PATCHES])
def test_every_target_exists(patch: Patch) -> None:
    module = patch.target.partition(":")[0]
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        pytest.skip("the library is not installed")
    importlib.import_module(module)
    if patch.module is None:
        pytest.skip(f"for {patch.versions}")
    assert patch.find() is not None


def test_every_patch_has_a_reason_and_a_target_of_its_own() -> None:
    targets = [patch.target for patch in PATCHES]
    assert sorted(set(targets)) == sorted(targets)
    assert not [patch for patch in PATCHES if not patch.reason.endswith(".")]


def attributes() -> dict[tuple[str, int, str], Any]:
    """Returns the attributes of all loaded modules, and of the classes in them, by owner and name."""
    owners: dict[int, tuple[str, Any]] = {}
    for module in [each for each in sys.modules.values() if type(each) is ModuleType]:
        owners[id(module)] = module.__name__, module
        for value in list(vars(module).values()):
            if issubclass(type(value), type):
                owners[id(value)] = f"{value.__module__}.{value.__name__}", value
    return {
        (name, place, attribute): value
        for place, (name, owner) in owners.items()
        for attribute, value in list(vars(owner).items())
    }


def replaced(capture: Callable[[nn.Module], Any]) -> set[tuple[str, int, str]]:
    """Returns the attributes that are others while a module is traced than before it."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    seen: SimpleQueue[Any] = SimpleQueue()  # an export restores the lists that hooks fill

    def look(*_: Any) -> None:
        if torch.compiler.is_exporting():
            seen.put(attributes())

    capture(model)  # imports modules
    before = attributes()
    model[1].register_forward_pre_hook(look)
    capture(model)
    during = seen.get(block=False)
    return {key for key in {**before, **during} if key not in before or before[key] is not during.get(key)}


def test_few_attributes_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts those of torch and Python. Functions of a model's library are replaced only if it has been imported.

    The tests of the room ``faster_tracing`` count its own.
    """
    monkeypatch.setenv("FX_ONNX_FASTER_TRACING", "0")
    x = torch.ones(3, 4)
    of_torch = replaced(lambda model: torch.export.export(model, (x,), dynamic_shapes=({0: Dim.AUTO},)))
    found = replaced(lambda model: fx_onnx.export(model, (x,), dynamic_shapes=({0: "rows"},)))
    names = sorted(f"{owner}.{name}" for owner, _, name in found - of_torch if is_library(owner))
    names = [name for name in names if not name.startswith("fx_onnx.")]
    assert len(names) <= LIMIT + len(OLDER), ", ".join(names)
    own = {name.rpartition(".")[2] for name in names}
    assert (
        not own
        & {"isinstance", "type", "__class__", "__str__", "__repr__", "__format__"}
        & {n.split(".")[-1] for n in names}
    )


@pytest.mark.parametrize("strict", [False, True])
def test_nothing_stays_replaced(strict: bool) -> None:
    model = nn.Sequential(nn.LSTM(2, 2))
    with apply_patches(PATCHES):
        pass  # imports modules
    with patched_torch(model, strict, Changes()):
        pass
    before = attributes()
    with patched_torch(model, strict, Changes(with_backward=True)):
        during = attributes()
    after = attributes()
    changed = {key for key in before if before[key] is not during.get(key)}
    assert (not strict) == any(name == "pack_padded_sequence" for _, _, name in changed)
    remaining = [key for key in changed if before[key] is not after[key] and key[2] != "next_id"]  # a count of hooks
    assert [key for key in remaining if not key[0].startswith("fx_onnx")] == []


def test_layers_are_replaced_in_models_that_have_them() -> None:
    before = nn.LSTM.forward
    with patched_torch(nn.Linear(2, 2), False, Changes()):
        assert nn.LSTM.forward is before
    with patched_torch(nn.Sequential(nn.LSTM(2, 2)), False, Changes()):
        assert nn.LSTM.forward is not before
