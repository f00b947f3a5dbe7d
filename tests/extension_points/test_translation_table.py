"""The translation table: one registry, the newest translation of an opset, a predicate that declines."""

from collections.abc import Iterator

import pytest
import torch

from fx_onnx.extension_points import translation_table as registry
from fx_onnx.extension_points.translation_table import (
    Fallback,
    Translation,
    TranslationTable,
    translates,
    translation_table,
)

aten = torch.ops.aten
TARGET = aten.special_xlog1py.default  # any overload works, because the tests use an empty registry


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registered", {})
    translation_table.cache_clear()
    yield
    translation_table.cache_clear()


def _function(*args: object) -> tuple[object, ...]:
    return args


def _of_a_float(op: object, self: object, alpha: float) -> None:
    pass


def test_the_newest_translation_that_the_opset_has() -> None:
    translates(TARGET)(_function)
    newer = translates(TARGET, since=23)(lambda op, self, other: None)
    assert translation_table(22)[TARGET].function is _function
    assert translation_table(23)[TARGET].function is newer
    assert translation_table(26)[TARGET].function is newer


def test_order_of_registration_does_not_matter() -> None:
    newer = translates(TARGET, since=21)(lambda op, self, other: None)
    translates(TARGET)(_function)
    assert translation_table(21)[TARGET].function is newer
    assert translation_table(20)[TARGET].function is _function


def test_a_target_whose_translation_is_too_new_is_absent() -> None:
    translates(TARGET, since=23)(_function)
    assert TARGET not in translation_table(22)
    assert translation_table(22).find(TARGET, (), {}) is None
    assert TARGET in translation_table(23)


def test_several_targets() -> None:
    translates(TARGET, aten.special_xlog1py.other_scalar)(_function)
    assert set(translation_table(20)) == {TARGET, aten.special_xlog1py.other_scalar}
    assert len(translation_table(20)) == 2


def test_two_translations_of_one_opset_are_refused() -> None:
    translates(TARGET)(_function)
    with pytest.raises(ValueError, match="two translations since opset 18"):
        translates(TARGET)(_function)


def test_registration_rebuilds_the_table() -> None:
    assert TARGET not in translation_table(20)
    translates(TARGET)(_function)
    assert TARGET in translation_table(20)


def test_a_predicate_declines_by_the_arguments() -> None:
    translates(TARGET, supports=lambda self, other=0: self > other)(_function)
    assert translation_table(20).find(TARGET, (2, 1), {}) is translation_table(20)[TARGET]
    assert translation_table(20).find(TARGET, (2,), {"other": 3}) is None


def test_a_table_is_built_once() -> None:
    assert translation_table(20) is translation_table(20)


def test_a_users_translations_extend_a_copy() -> None:
    translates(TARGET, since=20)(_function)
    custom = lambda op, self, other: None  # noqa: E731
    extended = translation_table(20).extended([Translation(TARGET, custom)])
    assert isinstance(extended, TranslationTable)
    assert extended.opset == 20
    assert extended[TARGET].function is custom
    assert translation_table(20)[TARGET].function is _function


def test_accepts_without_a_predicate() -> None:
    assert Translation(TARGET, _function).accepts((1,), {})


def test_a_predicate_gets_the_arguments_that_it_names() -> None:
    target = torch.ops.aten.add.Tensor
    by_name = Translation(target, _function, supports=lambda other, alpha=1: (other, alpha) == (2, 1))
    assert by_name.accepts((1, 2), {})
    assert not by_name.accepts((1, 2), {"alpha": 3})
    assert Translation("aten::add", _function, supports=lambda self: self == 1).accepts((1, 2), {}, (), target)


def test_which_translations_accept_all_calls() -> None:
    assert Translation(TARGET, _function).accepts_all
    assert not Translation(TARGET, _of_a_float).accepts_all
    assert Translation(TARGET, _of_a_float, is_custom=True).accepts_all
    assert not Translation(TARGET, _function, supports=lambda *arguments: True).accepts_all
    assert not Translation(TARGET, _function, is_custom=True, declines=lambda *arguments: False).accepts_all
    translates(TARGET)(_function)
    table = translation_table(20)
    assert table.find_for_all(TARGET) is table[TARGET]
    assert table.find_for_all("other") is None
    kept = table.with_fallback(Fallback(lambda target: _function, is_first=True))
    assert kept.find_for_all(TARGET) is None
