"""Stand-ins are everywhere in the place of what they stand for, and go again, also after an error."""

import sys
from types import ModuleType

import pytest

from fx_onnx.capture.patches.patching import patches_applied


class Layer:
    def size(self) -> int:
        return 1


def count() -> int:
    return 1


def test_functions_and_methods_are_replaced_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("other")
    other.__dict__["count"] = count
    monkeypatch.setitem(sys.modules, "other", other)
    patches = {
        (__name__, "count"): lambda: 2,
        (__name__, "Layer.size"): lambda self: 2,
        ("never_imported", "count"): lambda: 2,
    }
    here = sys.modules[__name__]
    with pytest.raises(ZeroDivisionError), patches_applied(patches):
        assert (here.count(), other.count(), Layer().size()) == (2, 2, 2)
        raise ZeroDivisionError
    assert (here.count(), other.count(), Layer().size()) == (1, 1, 1)


def test_modules_are_looked_through_again_after_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    late = ModuleType("late")
    monkeypatch.setitem(sys.modules, "late", late)
    patches = {(__name__, "count"): lambda: 2}
    with patches_applied(patches):
        assert not hasattr(late, "count")
    late.__dict__["count"] = count
    monkeypatch.setitem(sys.modules, "later", ModuleType("later"))
    with patches_applied(patches):
        assert late.count() == 2
    assert late.count() == 1
