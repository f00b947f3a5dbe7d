"""Facts about torch's symbolic sizes; computing them adds no guard."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import sympy
import torch
from torch import nn
from torch.export import Dim

import fx_onnx
from fx_onnx.sizes import symbolic_sizes


class SizesAndCount(nn.Module):
    """Computes with the sizes of the input, and returns a ``nonzero`` whose length u0 depends on data."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + x.shape[0] * x.shape[1], x.nonzero()


@pytest.fixture(scope="module")
def sizes() -> tuple[torch.SymInt, torch.SymInt, torch.SymInt]:
    """The two sizes of an input, and a data-dependent one."""
    shapes = ({0: Dim("a", min=2), 1: Dim("b", min=2)},)
    program = torch.export.export(SizesAndCount(), (torch.randn(7, 5),), dynamic_shapes=shapes)
    (placeholder,) = program.graph.find_nodes(op="placeholder")
    (nonzero,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.nonzero.default)
    return (*placeholder.meta["val"].shape, nonzero.meta["val"].shape[0])


def test_static_and_same_size_add_no_guards(sizes: tuple[torch.SymInt, ...]) -> None:
    a, b, _ = sizes
    guards = len(a.node.shape_env.guards)
    assert symbolic_sizes.static(a * 0 + 3) == 3
    assert symbolic_sizes.static(a) is a
    assert symbolic_sizes.static(5) == 5
    assert symbolic_sizes.static(True) is True
    assert symbolic_sizes.same_size(a, a + 0)
    assert not symbolic_sizes.same_size(a, b)
    assert not symbolic_sizes.same_size(a, 7)
    assert symbolic_sizes.same_size(4, 4)
    assert len(a.node.shape_env.guards) == guards


def test_a_size_that_is_negative_for_empty_inputs(sizes: tuple[torch.SymInt, ...]) -> None:
    a, b, count = sizes
    for size in (a - 1, (a - 2) // 3, torch.sym_min(a, b - 1), count - 1):
        assert symbolic_sizes.is_written_as_negative(size)
    for size in (a, a * b + 1, a - b + 2, count, -1, 6 // b):
        assert not symbolic_sizes.is_written_as_negative(size)


def test_expressions_of_plain_numbers() -> None:
    assert symbolic_sizes.expression(3) == sympy.Integer(3)
    assert float(symbolic_sizes.expression(0.5)) == 0.5


def test_equal_sizes_compare_equal(sizes: tuple[torch.SymInt, ...]) -> None:
    a, b, _ = sizes
    guards = len(a.node.shape_env.guards)
    assert symbolic_sizes.size_of(4) == 4
    assert type(symbolic_sizes.size_of(a * 0 + 3)) is int
    assert symbolic_sizes.size_of(a + b) == symbolic_sizes.size_of(b + a) != symbolic_sizes.size_of(a)
    assert len(a.node.shape_env.guards) == guards


def test_which_sizes_depend_on_data(sizes: tuple[torch.SymInt, ...]) -> None:
    a, b, count = sizes
    assert symbolic_sizes.is_data_dependent(symbolic_sizes.expression(count))
    assert symbolic_sizes.is_data_dependent(symbolic_sizes.expression(2 * count + a))
    assert not symbolic_sizes.is_data_dependent(symbolic_sizes.expression(a * b))
    assert not symbolic_sizes.is_data_dependent(sympy.Integer(3))


def test_dtypes_of_symbolic_numbers(sizes: tuple[torch.SymInt, ...]) -> None:
    a, b, _ = sizes
    numbers = (a, torch.sym_float(a), a < b, 3)
    expected = [ir.DataType.INT64, ir.DataType.DOUBLE, ir.DataType.BOOL, ir.DataType.INT64]
    assert [symbolic_sizes.number_dtype(number) for number in numbers] == expected


def test_the_constant_shape_of_a_reshape(sizes: tuple[torch.SymInt, ...]) -> None:
    a, b, count = sizes
    assert symbolic_sizes.constant_shape((a, b, 6), (a, b, 2, 3)) == [0, 0, 2, 3]
    assert symbolic_sizes.constant_shape((a, b), (a, 2 * b)) == [0, -1]
    assert symbolic_sizes.constant_shape((count, b), (count, 2 * b)) is None
    assert symbolic_sizes.constant_shape(None, (a, b)) is None
    assert symbolic_sizes.constant_shape(None, (a, 3)) == [-1, 3]


def test_a_dim_named_u1_by_the_user_does_not_depend_on_data() -> None:
    """Two Unsqueezes become one Reshape, with a copied and an inferred size, unless a dim depends on data."""

    class Views(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu().unsqueeze(1).unsqueeze(3)

    class ViewsOfSelectedRows(Views):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x[x[:, 0, 0] > 0])

    x = torch.ones(4, 3, 5)
    named = fx_onnx.export(Views().eval(), (x,), dynamic_shapes=({0: "u1", 2: "u2"},))
    assert [node.op_type for node in named.model.graph] == ["Relu", "Reshape"]
    found = fx_onnx.export(ViewsOfSelectedRows().eval(), (x,), dynamic_shapes=({0: "n", 2: "width"},))
    assert [node.op_type for node in found.model.graph][-2:] == ["Unsqueeze", "Unsqueeze"]
    assert found(-x)[0].shape == (0, 1, 3, 1, 5)


def test_a_size_is_not_inferred_beside_a_copied_count() -> None:
    """Reshape could not infer -1 if no row were selected."""

    class SelectedRows(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x[:, 0, 0] > 0].flatten(1)

    program = fx_onnx.export(SelectedRows().eval(), (torch.ones(4, 3, 5),), dynamic_shapes=({1: "height", 2: "width"},))
    assert program(torch.ones(4, 2, 7))[0].shape == (4, 14)
    assert program(-torch.ones(4, 2, 7))[0].shape == (0, 14)


def test_same_where_static(sizes: tuple[torch.SymInt, torch.SymInt, torch.SymInt]) -> None:
    a, b, _ = sizes
    same = symbolic_sizes.same_where_static
    assert same((2, a, 3), (2, b, 3)), "sizes that are not static may be equal"
    assert same((2, None), (2, 5))
    assert same((), ())
    assert same((5,), (0,)), "a result that is not asked for"
    assert not same((0,), (5,))
    assert not same((2, a), (3, a))
    assert not same((2,), (2, 1))
