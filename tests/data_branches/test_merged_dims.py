"""A dim is known of a value where all paths know it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import onnx_ir as ir

from fx_onnx.data_branches.merged_dims import MergedDims
from fx_onnx.onnx_model import metadata


def paths(*shapes: list[Any]) -> list[Any]:
    """Returns paths with one input of a shape each, whose number is (0, 0)."""
    found = []
    for shape in shapes:
        value = ir.Value(name="x", shape=ir.Shape(shape))
        graph = SimpleNamespace(inputs=[value])
        model = SimpleNamespace(graph=graph, meta={metadata.DATA_DEPENDENT_DIMS: frozenset({"u0"})})
        found.append(SimpleNamespace(of={(0, 0): value}, values={value: (0, 0)}, model=model))
    return found


def dims(shape: ir.Shape | None) -> list[Any]:
    return [each if isinstance(each, int) else each.value for each in shape or ()]


def test_a_size_that_one_path_knows_has_a_name_of_its_own() -> None:
    both = paths(["u0", "n", 4], [2, "n", 4])
    merged = MergedDims(both)
    assert dims(merged.of((0, 0), both)) == ["dim", "n", 4]
    assert dims(merged.of((0, 0), both[1:])) == [2, "n", 4]
    assert merged.data_dependent == {"u0", "dim"}


def test_ranks_that_differ_are_unknown() -> None:
    both = paths(["n"], ["n", 4])
    assert MergedDims(both).of((0, 0), both) is None


def test_nothing_is_known_of_a_value_that_a_path_lacks() -> None:
    both = paths([3, "n"], [3, "n"])
    both[1].of.clear()
    assert dims(MergedDims(both).of((0, 0), both)) == [None, None]


def test_an_input_is_static_and_equal_where_one_path_needs_it() -> None:
    both = paths(["n", "m", 4], ["n", "n", 4])
    assert dims(MergedDims(both).of_input((0, 0))) == ["n", "n", 4]
    assert dims(MergedDims(paths(["n", "m"], [3, "m"])).of_input((0, 0))) == [3, "m"]
