"""Tests of the values of TorchScript programs."""

import inspect

import pytest
import torch
from torch import Tensor

from fx_onnx.messages.errors import CaptureError
from fx_onnx.torchscript import script_values
from fx_onnx.torchscript.script_values import (
    DTYPES,
    Appended,
    Instance,
    ScalarTensor,
    argument_value,
    content,
    described,
    is_unchanged,
    known_bool,
    like,
    number_of,
    parameters,
    rebuild,
    replace_content,
    result_value,
)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.float16, torch.float64, torch.complex64, torch.bool, torch.bfloat16]
)
def test_numbers_of_dtypes_are_those_of_torchscript(dtype):
    code = script_values.DTYPES.index(dtype)
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


@torch.jit.script
def function(x: Tensor, scale: float, kind: int, place: torch.device, sizes: list[int], pair: tuple[Tensor, float]):
    return x


@torch.jit.script
def with_defaults(x: Tensor | None = None, n: int = 3):
    return x


def test_parameters():
    found = parameters(with_defaults.schema.arguments)
    assert [(each.name, each.default) for each in found] == [("x", None), ("n", 3)]
    assert parameters(function.schema.arguments)[0].default is inspect.Parameter.empty


def test_equal_names_of_arguments_get_numbers():
    """As those of torch.jit.trace for ``*args``, of which a function inside reads each."""
    twice = [*function.schema.arguments[:1]] * 3
    name = twice[0].name
    assert [each.name for each in parameters(twice)] == [name, f"{name}_1", f"{name}_2"]


def test_arguments_are_converted_as_torchscript_does():
    x = torch.ones(2)
    given = [x, 3, torch.float16, "cpu", (1, 2), [x, 4]]
    expected = [x, 3.0, 5, torch.device("cpu"), [1, 2], (x, 4.0)]
    found = [argument_value(value, each.type) for value, each in zip(given, function.schema.arguments, strict=True)]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]
    assert argument_value(None, with_defaults.schema.arguments[0].type) is None


def test_results():
    x = torch.ones(2)
    assert result_value({"a": [ScalarTensor(3, torch.int64)]}) == {"a": [torch.tensor(3)]}
    assert result_value((x,))[0] is x
    with pytest.raises(CaptureError, match=r"list whose length depends on data, .* return torch\.stack"):
        result_value([Appended(x)])


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (1, 1, True),
        ("a", "b", False),
        ([1, (2,)], [1, (2,)], True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 2}, False),
        (None, None, True),
        (1, True, False),
        (Instance(attributes={"n": 1}), Instance(attributes={"n": 1}), True),
        (Instance(attributes={"n": 1}), Instance(attributes={"n": 2}), False),
    ],
)
def test_is_unchanged(before, after, same):
    assert is_unchanged(before, after) is same


def test_tensors_are_unchanged_only_if_they_are_the_same():
    x = torch.ones(2)
    assert is_unchanged([x], [x])
    assert not is_unchanged([x], [x.clone()])
    assert described(x) == "a tensor of float32 with shape (2,)"
    assert described([1, 2]) == "list of length 2"
