"""Tests of the arguments and results of TorchScript programs."""

import inspect

import pytest
import torch
from torch import Tensor

from fx_onnx.capture.torchscript.grown_list import Appended
from fx_onnx.capture.torchscript.script_arguments import (
    argument_value,
    described,
    is_unchanged,
    parameter,
    result_value,
)
from fx_onnx.capture.torchscript.script_values import Instance, ScalarTensor
from fx_onnx.core.errors import CaptureError
from fx_onnx.core.torch_private import storage_id


@torch.jit.script
def function(x: Tensor, scale: float, kind: int, place: torch.device, sizes: list[int], pair: tuple[Tensor, float]):
    return x


@torch.jit.script
def with_defaults(x: Tensor | None = None, n: int = 3):
    return x


def test_parameters():
    found = [parameter(argument) for argument in with_defaults.schema.arguments]
    assert [(each.name, each.default) for each in found] == [("x", None), ("n", 3)]
    assert parameter(function.schema.arguments[0]).default is inspect.Parameter.empty


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
    assert result_value({"a": [ScalarTensor(3, torch.int64)]}, set()) == {"a": [torch.tensor(3)]}
    assert result_value((x,), set())[0] is x
    copied = result_value((x,), {storage_id(x)})[0]
    assert copied.equal(x)
    assert copied is not x
    with pytest.raises(CaptureError, match=r"list whose length depends on data, .* return torch\.stack"):
        result_value([Appended(x)], set())


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
