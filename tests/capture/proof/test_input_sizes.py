"""The dynamic sizes of inputs: which are requested, excluded by a condition, small, and how arguments get them."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
import torch
from torch.export import Dim

from fx_onnx.capture.proof.input_sizes import InputSizes
from fx_onnx.capture.proof.size_condition import Condition
from fx_onnx.requests.request import parse_request
from fx_onnx.sizes.trial_sizes import resized_empty
from fx_onnx.torch_internals.torch_private import size_oblivious
from tests.capture.sample_modules import Function, t


def sizes_of(rows: int, dims: Any, second: int = 5) -> tuple[InputSizes, sympy.Symbol, sympy.Symbol]:
    """Returns the sizes of (rows, 2) and (second, 2), whose first axes are dynamic, and their symbols."""
    args, module = (t(rows, 2), t(second, 2)), Function(lambda x, y: (x * 2, y + 1))
    with size_oblivious():
        auto = {"x": {0: Dim.AUTO}, "y": {0: Dim.AUTO}}
        program = torch.export.export(module, args, dynamic_shapes=auto, strict=False)
    sizes = InputSizes(parse_request(module, args, dynamic_shapes=tuple({0: dim} for dim in dims)), program)
    sizes.enlarge([])
    n, m = (sizes.inputs[place].dim(0) for place in (0, 1))
    return sizes, n, m


def test_names_and_sizes() -> None:
    sizes, n, m = sizes_of(1, ("n", "m"))
    assert sizes.names == {n: "n", m: "m"}
    assert sizes.example == {n: 1, m: 5}
    assert sizes.larger == {n: 2, m: 5}


@pytest.mark.parametrize(
    ("dim", "expected"), [("n", [0, 1, 2, 7]), (Dim("n", min=2), [2, 7]), (Dim("n", min=1, max=5), [1, 2])]
)
def test_the_requested_sizes(dim: object, expected: list[int]) -> None:
    sizes, n, _ = sizes_of(2, (dim, "m"))
    assert sizes.requested(n, (0, 1, 7)) == expected


def test_the_sizes_that_a_condition_excludes() -> None:
    sizes, n, m = sizes_of(3, ("n", Dim("m", min=2, max=6)))
    assert [point[m] for point in sizes.excluded(Condition(m < 4))] == [4, 5, 6]
    assert {(point[n], point[m]) for point in sizes.excluded(Condition(n >= m))} >= {(2, 3), (2, 5), (4, 5)}
    completed = list(sizes.completed({n: 9}, [Condition(sympy.Eq(n, m))]))
    assert completed[0] == {n: 9, m: 5} and {each[n] for each in completed} == {9}


def test_small_sizes_are_those_of_one_dim_and_of_all() -> None:
    sizes, n, m = sizes_of(3, ("n", "m"))
    small = sizes.small()
    assert {n: 1, m: 5} in small and {n: 1, m: 1} in small and {n: 60, m: 5} in small
    assert min(min(point.values()) for point in small) == 1


def test_arguments_have_the_sizes() -> None:
    sizes, n, m = sizes_of(3, ("n", "m"))
    args, kwargs = sizes.arguments({n: 7, m: 1}, resized_empty)
    assert [each.shape for each in args] == [(7, 2), (1, 2)] and not kwargs
    args, _ = sizes.arguments({n: 7, m: 1, (1, 1): 4}, resized_empty)
    assert args[1].shape == (1, 4)
    assert sizes.elements({n: 7, m: 1}) == 16


@pytest.mark.parametrize(
    ("own", "asked", "expected", "told"),
    [
        (Dim("b"), Dim("b", min=3, max=6), (3, 6), ""),
        (Dim.AUTO, Dim("b", max=6), (0, 6), ""),
        (Dim("b", min=3, max=8), Dim("b", min=4, max=6), (4, 6), ""),
        (Dim("b", min=3, max=8), Dim("b"), (3, 8), ""),
        (Dim("b", min=3, max=8), Dim("b", max=9), (3, 8), "'b' the sizes 3 to 8, for which the ExportedProgram was"),
        (Dim("b", min=3, max=8), Dim("b", min=1), (3, 8), "and not 1 or more; capture it with this range."),
    ],
)
def test_a_range_narrows_that_of_a_given_program(own: Any, asked: Any, expected: object, told: str) -> None:
    """A wider range is told."""
    program = torch.export.export(Function(lambda x: x * 2), (t(5, 2),), dynamic_shapes=({0: own},))
    sizes = InputSizes(parse_request(program, dynamic_shapes=({0: asked},)), program)
    assert sizes.declared(sizes.inputs[0].dim(0)) == expected
    assert bool(told) == bool(list(sizes.narrowed())) and all(told in text for text in sizes.narrowed())
