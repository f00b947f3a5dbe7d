"""Patches replace a function in every module that has it, and are removed afterwards, also after an error."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

from fx_onnx.capture.patches.patching import InOtherThreads, apply_patches, replace_attribute


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


def test_a_function_is_replaced_under_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    other, library = ModuleType("other"), ModuleType("torch.other")  # torch may keep the original under another name
    for each in (other, library):
        each.__dict__["number"] = count
        monkeypatch.setitem(sys.modules, each.__name__, each)
    with apply_patches({(__name__, "count"): lambda: 2}):
        assert (other.number(), library.number()) == (2, 1)
    assert other.number() == 1


class Owner:
    def kept(self) -> int:
        return 1

    @classmethod
    def of_class(cls) -> int:
        return 1

    @staticmethod
    def of_nothing() -> int:
        return 1


def in_another_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor() as threads:
        return threads.submit(function).result()


def test_other_threads_call_the_originals() -> None:
    before = dict(vars(Owner))
    with (
        replace_attribute(Owner, "kept", lambda self: 2),
        replace_attribute(Owner, "of_class", classmethod(lambda cls: 2)),
        replace_attribute(Owner, "of_nothing", staticmethod(lambda: 2)),
    ):

        def call() -> list[int]:
            return [Owner().kept(), Owner.of_class(), Owner().of_nothing()]

        assert call() == [2, 2, 2]
        assert in_another_thread(call) == [1, 1, 1]
    assert dict(vars(Owner)) == before


def test_an_absent_original_is_the_inherited_function_or_none() -> None:
    class Heir(Owner):
        pass

    instance, module = Owner(), ModuleType("module")
    with (
        replace_attribute(Heir, "kept", lambda self: 2),
        replace_attribute(Heir, "of_nothing", staticmethod(lambda: 2)),
        replace_attribute(Heir, "__divmod__", lambda self, other: 2),
        replace_attribute(instance, "kept", lambda: 3),
        replace_attribute(module, "len", lambda x: 2),
    ):
        assert (Heir().kept(), Heir.of_nothing(), divmod(Heir(), 1), instance.kept(), module.len([])) == (2, 2, 2, 3, 2)
        assert in_another_thread(lambda: (Heir().kept(), Heir.of_nothing(), instance.kept(), module.len([]))) == (
            1, 1, 1, 0,
        )  # fmt: skip
        with pytest.raises(TypeError, match="divmod"):
            in_another_thread(lambda: divmod(Heir(), 1))
    assert vars(instance) == {}
    assert "len" not in vars(module)
    assert not {"kept", "of_nothing", "__divmod__"} & vars(Heir).keys()


def test_replacements_in_all_threads_but_this_one() -> None:
    here = sys.modules[__name__]
    with apply_patches({(__name__, "count"): InOtherThreads(lambda: 2)}):
        assert here.count() == 1
        assert in_another_thread(lambda: here.count()) == 2
    assert here.count is count


def test_a_second_thread_waits() -> None:
    def replace() -> int:
        with replace_attribute(Owner, "kept", lambda self: 3):
            return Owner().kept()

    with ThreadPoolExecutor() as threads:
        with replace_attribute(Owner, "kept", lambda self: 2):
            waiting = threads.submit(replace)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.05)
            assert Owner().kept() == 2
        assert waiting.result() == 3
    assert Owner().kept() == 1
