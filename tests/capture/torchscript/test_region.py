"""Tests of regions: what a body reads and changes, and the common form of two values."""

import pytest
import torch

from fx_onnx.capture.torchscript.region import Form, MergeError, Region, ScriptRaise, content, merge, shares_storage
from fx_onnx.capture.torchscript.script_values import Instance, ScalarTensor, Uninitialized

X, Y = torch.ones(2), torch.zeros(3)


def test_a_region_keeps_its_changes_away():
    items, region = [X, 1], Region(None)
    inner = region.enter(items)
    inner[0].add_(1)
    inner.append(2)
    assert X.equal(torch.ones(2))
    assert items == [X, 1]
    assert region.outer_of(inner) is items
    assert region.outer_of(inner[0]) is X
    assert region.outer_of(3) is NotImplemented
    assert [outer for outer, _ in region.changed_containers()] == [items]
    assert [outer for outer, _ in region.written().values()] == [X]


def test_what_is_only_read_is_not_changed():
    items, region = {"a": [X]}, Region(None)
    region.enter(items)["a"][0].sum()
    assert region.changed_containers() == []
    assert region.written() == {}
    assert list(region.read.values()) == [X]


def test_views_share_storage():
    region = Region(None)
    row = X[:1]
    region.enter(X)
    region.enter(row).add_(1)
    assert shares_storage(region.written(), region.read)


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        (1, 1, []),
        (1, 2, ["int"]),
        (1.0, 2.0, ["float"]),
        (True, False, ["bool"]),
        ("a", "a", []),
        (None, None, []),
        (X, X, []),
        (X, X + 1, ["tensor"]),
        (ScalarTensor(1, torch.int64), torch.tensor(2), ["tensor"]),
        ((X, 1), (X, 2), ["int"]),
        ([X, X], [X + 1, X], ["tensor"]),
        ({"a": 1, "b": X}, {"a": 2, "b": X + 1}, ["int", "tensor"]),
        (Uninitialized("TensorType"), X, ["tensor"]),
        (3, Uninitialized("IntType"), ["int"]),
        (Instance(attributes={"n": 1}), Instance(attributes={"n": 2}), ["int"]),
    ],
)
def test_forms(first, second, kinds):
    form = merge(first, second, (None, None))
    assert [leaf.kind for leaf in form.leaves()] == kinds
    for value in (first, second):
        built = form.build(form.flatten(value))
        if isinstance(value, (int, float, str, type(None))):
            assert built == value


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (X, None, "a tensor in one case and NoneType None"),
        ("a", "b", "str a in one"),
        ([1], [1, 2], "it has 1 and 2 items"),
    ],
)
def test_values_without_a_common_form(first, second, message):
    with pytest.raises(MergeError, match=message):
        merge(first, second, (None, None))


def test_gaps_are_zeros():
    form = merge(Uninitialized("TensorType"), X, (None, None))
    (gap,) = form.flatten(Uninitialized("TensorType"))
    assert gap.equal(torch.zeros(2))
    assert Form("known", 3).build([]) == 3


def test_content_is_a_copy():
    for container in ({"a": 1}, [1], Instance(attributes={"a": 1})):
        content(container).clear()
        assert content(container)


def test_an_exception_of_the_model_has_its_place():
    assert str(ScriptRaise("bad", " (a.py:3: raise)")) == "bad (a.py:3: raise)"
