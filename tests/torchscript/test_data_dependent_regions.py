"""Tests of regions: what a body reads and changes, and the common form of two values."""

import pytest
import torch

from fx_onnx.torchscript.data_dependent import Known, MergeError, Region, build, flatten, leaves, merge
from fx_onnx.torchscript.script_values import Instance, ScalarTensor, Uninitialized

X, Y = torch.ones(2), torch.zeros(3)


def merged(first, second):
    """Returns the common form of two outer values after two runs that only read them."""
    regions = Region(), Region()
    return merge(regions[0].enter(first), regions[1].enter(second), regions)


def test_a_region_keeps_its_changes_away():
    items, region = [X, 1], Region()
    inner = region.enter(items)
    inner[0].add_(1)
    inner.append(2)
    assert X.equal(torch.ones(2))
    assert items == [X, 1]
    assert region.outer_of(inner) is items
    assert region.outer_of(inner[0]) is X
    assert region.outer_of(3) is NotImplemented
    assert {id(outer) for outer in region.mutable()} == {id(items), id(X)}


def test_what_is_only_read_is_not_changed():
    items, region = {"a": [X]}, Region()
    region.enter(items)["a"][0].sum()
    assert not any(isinstance(outer, torch.Tensor) for outer in region.mutable())
    assert list(region.read.values()) == [X]


def test_only_the_attributes_that_a_body_reads_are_entered():
    module, region = Instance({"a": X, "b": Y}.get, module="a module"), Region()
    inner = region.enter(module)
    assert region.read == {}
    assert inner.get("a").equal(X)
    assert list(region.read.values()) == [X]
    assert region.outer_of(inner) is module


def test_a_write_to_a_tensor_with_a_view_is_refused():
    region = Region()
    region.enter(X)
    region.enter(X[:1]).add_(1)
    with pytest.raises(MergeError, match="of which another variable is a view"):
        list(region.mutable())


@pytest.mark.parametrize(
    ("first", "second", "dtypes"),
    [
        (1, 1, []),
        (1, 2, [torch.int64]),
        (1.0, 2.0, [torch.float64]),
        (True, False, [torch.bool]),
        ("a", "a", []),
        (None, None, []),
        (X, X, []),
        (X, X + 1, [torch.float32]),
        (ScalarTensor(1, torch.int64), torch.tensor(2), [torch.int64]),
        ((X, 1), (X, 2), [torch.int64]),
        ([X, X], [X + 1, X], [torch.float32]),
        ({"a": 1, "b": X}, {"a": 2, "b": X + 1}, [torch.int64, torch.float32]),
        (Uninitialized(), X, [torch.float32]),
        (3, Uninitialized(), [torch.int64]),
        (Instance(attributes={"n": 1}), Instance(attributes={"n": 2}), [torch.int64]),
    ],
)
def test_forms(first, second, dtypes):
    form = merged(first, second)
    assert [leaf.example.dtype for leaf in leaves(form)] == dtypes
    for value in (first, second):
        built = build(form, iter(flatten(form, value)))
        if isinstance(value, (int, float, str, type(None))):
            assert built == value


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (X, None, "a tensor in one case and NoneType None"),
        ("a", "b", "str a in one"),
        ([1], [1, 2], "it has 1 and 2 items"),
        (Instance(module="a"), Instance(module="b"), "Instance"),
    ],
)
def test_values_without_a_common_form(first, second, message):
    with pytest.raises(MergeError, match=message):
        merged(first, second)


def test_gaps_are_zeros():
    form = merged(Uninitialized(), X)
    (gap,) = flatten(form, Uninitialized())
    assert gap.equal(torch.zeros(2))
    assert build(Known(3), iter(())) == 3
