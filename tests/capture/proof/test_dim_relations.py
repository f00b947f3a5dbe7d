"""A relation between dims that the user requested separately is reported, whatever form the request has."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from transformers import DynamicCache

import fx_onnx
from fx_onnx.capture.capture import capture
from fx_onnx.messages.errors import OnnxExporterWarning
from fx_onnx.requests.request import parse_request
from tests.capture.sample_modules import Function, t
from tests.compare import assert_close

BATCH = Dim("batch")


def messages(function: object, *args: Tensor, dims: tuple[object, ...], **options: object) -> list[str]:
    """Returns the warnings of a capture in which these dims of axis 0 of the arguments are dynamic."""
    spec = None if options else tuple({0: dim} for dim in dims)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OnnxExporterWarning)
        capture(parse_request(Function(function).eval(), args, dynamic_shapes=spec, **options))
    texts = [str(each.message) for each in caught if each.category is OnnxExporterWarning]
    return [re.sub(r" \(\S+:\d+: .*\)\.$", ".", text.rpartition(" [fx-onnx explain FX")[0]) for text in texts]


@pytest.mark.parametrize(
    ("size", "dims", "relation"),
    [
        (3, ("a", "b"), "'a' and 'b' equal; both are called 'a'"),
        (3, (Dim.AUTO, Dim.AUTO), "x.shape[0] and y.shape[0] equal"),
        (0, (Dim.AUTO, Dim.AUTO), "x.shape[0] and y.shape[0] equal"),
        (1, (Dim.DYNAMIC, Dim.DYNAMIC), "x.shape[0] and y.shape[0] equal"),
        (1, (Dim.AUTO, "b"), "x.shape[0] and 'b' equal; both are called 'b'"),
        (3, (BATCH, Dim.DYNAMIC), "'batch' and y.shape[0] equal; both are called 'batch'"),
    ],
)
def test_equal_dims(size: int, dims: tuple[object, ...], relation: str) -> None:
    assert messages(torch.add, t(size, 4), t(size, 4), dims=dims) == [f"The model makes the dims {relation}."]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + 1 if x.shape == y.shape else x - 1,
        lambda x, y: x.expand_as(y),
        lambda x, y: x + 1 if x.shape[0] == len(y) else x,
    ],
)
def test_coincidences_of_the_example(function: object) -> None:
    (message,) = messages(function, t(4, 4), t(4, 4), dims=("a", Dim.AUTO))
    assert message == "The model makes the dims 'a' and y.shape[0] equal; both are called 'a'."


def test_dims_of_a_cache() -> None:
    """What a path of ours has as the key of a cache is an attribute for torch."""
    cache = DynamicCache()
    cache.update(t(2, 1, 5, 4), t(2, 1, 5, 4), 0)
    module = Function(
        lambda x, past: [torch.cat([each, x], 2) for each in (past.layers[0].keys, past.layers[0].values)]
    )
    shapes = ({0: "rows"}, {0: "batch", 2: "past"})
    with pytest.warns(OnnxExporterWarning, match="'rows' and 'batch' equal"):
        dims = capture(parse_request(module.eval(), (t(2, 1, 3, 4), cache), dynamic_shapes=shapes)).dims
    assert [(each.condition, each.kind) for each in dims.conditions] == [("rows == batch", "bound")]


def many(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Uses two independent dims in many operators."""
    joined, product, outer = torch.cat([x, y]), x @ y.T, x[:, None] * y
    longest = x.new_zeros(max(x.shape[0], y.shape[0]))
    return joined, product, outer, longest, x.sum(0) + y.mean(0), torch.nn.functional.pad(x, (0, 0, 0, y.shape[0]))


@pytest.mark.parametrize(
    ("function", "size"), [(many, 1), (many, 4), (lambda x, y: x[: y.shape[0]], 1), (lambda x, y: x[: y.shape[0]], 4)]
)
def test_independent_dims_of_equal_sizes(function: object, size: int) -> None:
    x, y = torch.rand(size, 4), torch.rand(size, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = fx_onnx.export(Function(function).eval(), (x, y), dynamic_shapes=({0: "a"}, {0: Dim.AUTO}))
    for rows in ((5, 2), (3, 6)):
        arguments = [torch.rand(count, 4) for count in rows]
        assert_close(program(*arguments), function(*arguments))


def test_one_tensor_given_twice() -> None:
    x = t(3)
    assert messages(lambda x, y: x[:, None] + y, x, x, dims=("a", "b")) == []
    assert len(messages(lambda x, y: x + y, x, x, dims=("a", "b"))) == 1


def test_two_axes_of_one_input() -> None:
    (message,) = messages(lambda x: x + x.T, t(4, 4), dims=(), dynamic_axes={"x": {0: "a", 1: "b"}})
    assert "'a' and 'b' equal" in message


@pytest.mark.parametrize(("dims", "relation"), [(("long", "n"), "'long' equal to n + 2"), ((Dim.AUTO,) * 2, "+ 2")])
def test_a_dim_that_is_an_expression(dims: tuple[object, ...], relation: str) -> None:
    (message,) = messages(lambda x, y: x + torch.cat([y, y.new_zeros(2)]), t(6), t(4), dims=dims)
    assert relation in message


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (lambda x, y: x * y, ((3, 4), (3, 4)), ("finding", "a == b", "a: equal to b", "b: equal to a")),
        (lambda x, y: x + 1 if x.shape == y.shape else x, ((3, 4), (3, 4)), ("finding", "a == b", "", "")),
        (lambda x, y: torch.cat([x, y], 1), ((3, 4), (3, 5)), ("bound", "a == b", "a: equal to b", "b: equal to a")),
        (lambda x, y: x.T @ y, ((3, 4), (3, 5)), ("bound", "a == b", "", "")),
        (lambda x, y: x[1:] * y, ((5, 4), (4, 4)), ("finding", "a == b + 1", "a: equal to b + 1", "b: any")),
        (
            lambda x, y: torch.cat([x[1:], y], 1),
            ((5, 4), (4, 4)),
            ("bound", "a == b + 1", "a: equal to b + 1", "b: any"),
        ),
    ],
)
def test_a_relation_is_a_bound_where_no_broadcast_is_possible(
    function: Any, shapes: Any, expected: tuple[str, ...]
) -> None:
    """A size of 1 is broadcast in eager mode, also where it is the size of a slice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxExporterWarning)
        args = tuple(torch.rand(shape) for shape in shapes)
        dims = capture(parse_request(Function(function).eval(), args, dynamic_shapes=({0: "a"}, {0: "b"}))).dims
    (condition,) = dims.conditions
    assert (condition.kind, str(condition), condition.dims) == (*expected[:2], ("a", "b"))
    assert "test_dim_relations.py" in condition.place
    assert all(str(row).startswith(start) for row, start in zip(dims, expected[2:], strict=True))
    shift = args[0].shape[0] - args[1].shape[0]
    assert [condition.holds({"a": a, "b": 7}) for a in (7 + shift, 6 + shift, 1)] == [True, False, False]


def test_requested_relations_are_not_reported() -> None:
    assert messages(torch.add, t(3), t(3), dims=("n", "n")) == []
    assert messages(lambda x, y: x[::2] + y, t(6), t(3), dims=(2 * BATCH, BATCH)) == []
    request = parse_request(
        Function(lambda x, y: x[::2] + y).eval(), (t(6), t(3)), dynamic_shapes=({0: 2 * BATCH}, {0: BATCH})
    )
    assert list(map(str, capture(request).dims)) == ["2*batch: any", "batch: any"]


def test_many_equal_dims_are_counted() -> None:
    def total(x: list[Tensor]) -> Tensor:
        return torch.stack(x).sum(0)

    with pytest.warns(OnnxExporterWarning, match=r"and 4 more equal \(.*\)\. \[fx-onnx explain FX\d+\]$"):
        capture(parse_request(Function(total).eval(), ([t(3)] * 8,), dynamic_shapes=([{0: Dim.AUTO}] * 8,)))


def test_the_line_that_makes_two_dims_equal() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    with pytest.warns(OnnxExporterWarning, match=r"both are called 'a' \(.*test_dim_relations.py:\d+: return x \+ y\)"):
        capture(parse_request(Model().eval(), (t(3), t(3)), dynamic_shapes=({0: "a"}, {0: "b"})))
