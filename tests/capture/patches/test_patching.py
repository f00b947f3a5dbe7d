"""Patches replace a function in every module that has it, and are removed afterwards, also after an error."""

import sys
from types import ModuleType

import pytest

from fx_onnx.capture.patches.patching import apply_patches, replace_attribute


class Layer:
    def size(self) -> int:
        return 1


def count() -> int:
    return 1


def test_functions_and_methods_are_replaced_within_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("other")
    other.__dict__["count"] = count
    monkeypatch.setitem(sys.modules, "other", other)
    patches = {
        (__name__, "count"): lambda: 2,
        (__name__, "Layer.size"): lambda self: 2,
        ("never_imported", "count"): lambda: 2,
    }
    here = sys.modules[__name__]
    with pytest.raises(ZeroDivisionError), apply_patches(patches):
        assert (here.count(), other.count(), Layer().size()) == (2, 2, 2)
        raise ZeroDivisionError
    assert (here.count(), other.count(), Layer().size()) == (1, 1, 1)


def test_modules_imported_later_are_patched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    late = ModuleType("late")
    monkeypatch.setitem(sys.modules, "late", late)
    patches = {(__name__, "count"): lambda: 2}
    with apply_patches(patches):
        assert not hasattr(late, "count")
    late.__dict__["count"] = count
    monkeypatch.setitem(sys.modules, "later", ModuleType("later"))
    with apply_patches(patches):
        assert late.count() == 2
    assert late.count() == 1


def test_the_last_context_to_end_restores_the_original() -> None:
    class Owner:
        there = 1

    first, second = replace_attribute(Owner, "there", 2), replace_attribute(Owner, "there", 3)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert Owner.there == 2
    second.__exit__(None, None, None)
    assert Owner.there == 1
    with replace_attribute(Owner, "absent", 1):
        assert Owner.absent == 1
    assert not hasattr(Owner, "absent")
