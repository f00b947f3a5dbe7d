"""Patches replace a function in every module that has it, and are removed afterwards, also after an error."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

from fx_onnx.capture.patches.patching import (
    Added,
    Around,
    InAllThreads,
    InOtherThreads,
    Patch,
    apply_patches,
    replace_attribute,
)


def two(*_: Any) -> int:
    return 2


def patch(name: str, replacement: Any = two, versions: str = "") -> Patch:
    return Patch(f"{__name__}:{name}", replacement, "a test", versions=versions)


class Layer:
    def size(self) -> int:
        return 1


def count() -> int:
    return 1


def test_functions_and_methods_are_replaced_within_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("other")
    other.__dict__["count"] = count
    monkeypatch.setitem(sys.modules, "other", other)
    patches = (patch("count"), patch("Layer.size"), Patch("never_imported:count", two, "a test"))
    here = sys.modules[__name__]
    with pytest.raises(ZeroDivisionError), apply_patches(patches):
        assert (here.count(), other.count(), Layer().size()) == (2, 2, 2)
        raise ZeroDivisionError
    assert (here.count(), other.count(), Layer().size()) == (1, 1, 1)


def test_modules_imported_later_are_patched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    late = ModuleType("late")
    monkeypatch.setitem(sys.modules, "late", late)
    patches = [patch("count")]
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
    with apply_patches([patch("count")]):
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
    with apply_patches([patch("count", InOtherThreads(two))]):
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


def test_replacements_that_need_the_original() -> None:
    here = sys.modules[__name__]
    with apply_patches([patch("count", Around(lambda original: lambda: original() + 5))]):
        assert (here.count(), in_another_thread(lambda: here.count())) == (6, 1)
    with apply_patches([patch("count", InAllThreads(lambda original: lambda: original() + 5))]):
        assert in_another_thread(lambda: here.count()) == 6
    with apply_patches([patch("Layer.__invert__", Added(two))]):
        assert ~Layer() == 2
    assert not hasattr(Layer, "__invert__") and here.count is count


def test_the_importer_of_a_function_is_a_target_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("other")
    other.__dict__["count"] = count
    monkeypatch.setitem(sys.modules, "other", other)
    with apply_patches([Patch("other:count", two, "a test")]):
        assert (other.count(), sys.modules[__name__].count()) == (2, 1)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [("pytest>=2", 2), ("pytest>=9999", 1), ("pytest<9999", 2), ("pytest<2", 1), ("no-such-library>=1", 1)],
)
def test_other_versions_are_not_patched(versions: str, expected: int) -> None:
    with apply_patches([patch("count", versions=versions)]):
        assert sys.modules[__name__].count() == expected


def test_a_target_that_is_gone_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with apply_patches([patch("Layer.width"), patch("Gone.size"), patch("count")]):
        assert sys.modules[__name__].count() == 2
    assert [each.getMessage().partition(" does not exist")[0] for each in caplog.records] == [
        f"{__name__}:Layer.width", f"{__name__}:Gone.size",
    ]  # fmt: skip
