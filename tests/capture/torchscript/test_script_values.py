"""Tests of the values of TorchScript programs."""

import pytest
import torch

from fx_onnx.capture.torchscript import script_values
from fx_onnx.capture.torchscript.script_values import (
    DTYPES,
    Instance,
    ScalarTensor,
    content,
    known_bool,
    like,
    number_of,
    rebuild,
    replace_content,
)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.float16, torch.float64, torch.complex64, torch.bool, torch.bfloat16]
)
def test_numbers_of_dtypes_are_those_of_torchscript(dtype):
    code = script_values.dtype_code(dtype)
    assert DTYPES[code] is dtype
    compiled = torch.jit.CompilationUnit(f"def same(x):\n    return x.dtype == {code}\n")
    assert compiled.same(torch.empty((), dtype=dtype))


def test_scalar_tensors():
    scalar = ScalarTensor(3, torch.int64)
    assert scalar.as_tensor().equal(torch.tensor(3))
    assert number_of(scalar) == 3
    assert number_of(torch.tensor(2.5)) == 2.5
    scalar.tensor = torch.tensor(5)
    assert number_of(scalar) == 5


def test_known_bool():
    assert known_bool(1) is True
    assert known_bool(False) is False


def test_rebuild_keeps_shared_containers_and_objects():
    items = [1, 2]
    value = {"a": (items, items), "o": Instance(attributes={"items": items}), "s": ScalarTensor(4, torch.int64)}
    copy = rebuild(value, lambda leaf: leaf * 10 if isinstance(leaf, int) else leaf, {})
    assert copy["a"] == ([10, 20], [10, 20])
    assert copy["a"][0] is copy["a"][1] is copy["o"].get("items")
    assert copy["s"].number == 40
    assert items == [1, 2]


def test_attributes_of_objects_are_read_once():
    found = []
    instance = Instance(lambda name: found.append(name) or name)
    assert instance.get("a") == instance.get("a") == "a"
    assert found == ["a"]


@pytest.mark.parametrize("container", [{"a": 1}, [1], (1,), Instance(attributes={"a": 1}), torch.Size([1])])
def test_content_is_a_copy(container):
    content(container).clear()
    assert list(content(container).values()) == [1]
    assert list(content(like(container, content(container))).values()) == [1]


@pytest.mark.parametrize("container", [{"a": 1}, [1], Instance(attributes={"a": 1}), torch.tensor(1)])
def test_the_content_is_replaced(container):
    (key,) = content(container)
    replace_content(container, {key: torch.tensor(2)})
    assert content(container)[key] == 2
