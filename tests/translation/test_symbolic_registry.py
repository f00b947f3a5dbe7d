"""The registrations of symbolic functions: names, opsets, and the copy that an export takes."""

from __future__ import annotations

from typing import Any

import pytest

from fx_onnx import ArgumentError
from fx_onnx.translation.symbolic_registry import register, registered, unregister


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
