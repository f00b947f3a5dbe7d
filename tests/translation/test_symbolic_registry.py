"""The registrations of symbolic functions: names, opsets, and the copy that an export takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fx_onnx import ArgumentError
from fx_onnx.translation.symbolic_registry import (
    autograd_functions,
    is_of_library,
    operator_named,
    overloads_of,
    register,
    registered,
    unregister,
)


def old(g: Any, x: Any) -> Any: ...
def new(g: Any, x: Any) -> Any: ...


@pytest.fixture
def registrations() -> Any:
    register("tests::op", old, 9)
    register("tests::op", new, 13)
    yield
    unregister("tests::op", 9)
    unregister("tests::op", 13)


@pytest.mark.usefixtures("registrations")
@pytest.mark.parametrize(("opset", "function"), [(8, None), (9, old), (12, old), (13, new), (26, new)])
def test_a_function_serves_opsets_from_its_own_on(opset: int, function: Any) -> None:
    assert registered(opset).get("tests::op") is function


@pytest.mark.usefixtures("registrations")
def test_a_copy_does_not_change() -> None:
    copy = registered(20)
    unregister("tests::op", 13)
    assert copy["tests::op"] is new
    assert registered(20)["tests::op"] is old
    unregister("tests::op", 13)  # there is none, which is no error
    unregister("tests::op", 9)
    assert "tests::op" not in registered(20)


def test_the_default_namespace_is_aten() -> None:
    register("::tests_only", old, 1)
    assert registered(20)["aten::tests_only"] is old
    unregister("aten::tests_only", 1)
    assert "aten::tests_only" not in registered(20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("relu", old, 9), "must be an operator without its overload, such as 'aten::relu', not 'relu'"),
        (("aten::add.Tensor", old, 9), "without its overload"),
        (("onnx::Relu", old, 9), "an operator of ONNX"),
        (("prim::ListConstruct", old, 9), "has no prim::ListConstruct"),
        (("aten::relu", None, 9), "symbolic_fn must be a function, not None"),
        (("aten::relu", old, "9"), "opset_version must be a number from 1 on, not '9'"),
        (("aten::relu", old, 0), "opset_version must be a number from 1 on, not 0"),
        (("aten::relu", old, True), "opset_version must be a number from 1 on, not True"),
    ],
)
def test_refusals(arguments: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        register(*arguments)


def test_an_operator_is_found_by_its_name() -> None:
    assert operator_named("aten::relu") is torch.ops.aten.relu
    assert operator_named("aten::none") is None


def test_overloads_without_a_result_as_argument() -> None:
    assert overloads_of(torch.ops.aten.relu) == [torch.ops.aten.relu.default]
    assert torch.ops.aten.add.out not in overloads_of(torch.ops.aten.add)


def test_a_function_of_the_library_that_defines_the_operator() -> None:
    assert not is_of_library("aten::relu", old)
    assert is_of_library(f"{old.__module__.partition('.')[0]}::relu", old)


def test_classes_of_classes_are_found() -> None:
    class Base(torch.autograd.Function): ...

    class Derived(Base): ...

    assert {Base, Derived} <= {*autograd_functions()}
