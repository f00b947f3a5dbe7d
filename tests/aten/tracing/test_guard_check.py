"""Refusal of traces that specialize a symbolic size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Graph
from torch.fx.experimental.symbolic_shapes import ShapeEnv, sym_and

import fx_onnx
from fx_onnx.aten.tracing.guard_check import refuse_guards, refuse_numbers, undone_guards
from fx_onnx.messages.errors import TranslationError
from fx_onnx.torch_internals.torch_private import FakeTensorMode


def _sizes() -> tuple[FakeTensorMode, list[torch.SymInt]]:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    return mode, [*mode.from_tensor(torch.ones(5, 7)).shape]


def test_a_guard_on_a_size_is_refused() -> None:
    mode, (rows, _) = _sizes()
    node = Graph().call_function(torch.relu)
    with pytest.raises(TranslationError, match=r"relu = .* can only be decomposed where .*s\d+"):  # noqa: SIM117
        with refuse_guards(mode, node):
            assert rows > 3


def test_a_guard_that_holds_for_all_sizes_is_accepted() -> None:
    mode, (rows, _) = _sizes()
    node = Graph().call_function(torch.relu)
    with refuse_guards(mode, node):
        assert (rows + 1) // 2 <= rows
    with pytest.raises(TranslationError), refuse_guards(mode, node):
        assert rows // 2 + 100 <= 5000


def test_a_guard_of_the_capture_is_accepted() -> None:
    """torch does not find the parts of an ``And`` among its guards."""
    mode, (rows, _) = _sizes()
    node = Graph().call_function(torch.relu)
    torch._check(sym_and(6 - rows >= 1, 6 - rows <= rows))
    with refuse_guards(mode, node):
        assert 6 - rows <= rows
    with pytest.raises(TranslationError), refuse_guards(mode, node):
        assert 8 - rows <= rows


def test_an_undone_guard_is_refused_later() -> None:
    """The question of an optional translation says nothing about a decomposition that needs the same guard."""
    mode, (rows, _) = _sizes()
    with undone_guards(mode) as found:
        assert rows > 3
    assert [str(each) for each in found] == [f"{rows} > 3"]
    with pytest.raises(TranslationError), refuse_guards(mode, Graph().call_function(torch.relu)):
        assert rows > 3


def test_a_dim_that_became_a_number_is_refused() -> None:
    mode, (rows, columns) = _sizes()
    names = {str(rows): "rows", str(columns): "columns", f"2*{rows}": "twice"}
    refuse_numbers(mode, names)
    assert int(rows) == 5
    with pytest.raises(TranslationError, match=r"became a number .*: rows is 5; make the dim static"):
        refuse_numbers(mode, names)


def test_equal_sizes_and_sizes_0_and_1_are_accepted() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x, y = (mode.from_tensor(torch.ones(n)) for n in (5, 5))
    with refuse_guards(mode, Graph().call_function(torch.relu)):
        assert x.shape[0] == y.shape[0]
        with mode:
            torch.ones(x.shape[0]) + torch.ones(1)


def test_relations_of_sizes_are_reported() -> None:
    """An equation with a sum of sizes is accepted and reported."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    past, new, total, other = (mode.from_tensor(torch.ones(n)).shape[0] for n in (5, 3, 8, 4))
    with refuse_guards(mode, Graph().call_function(torch.relu)) as relations:
        assert past + new == total
    assert [len(relation.free_symbols) for relation in relations] == [3]
    with refuse_guards(mode, Graph().call_function(torch.relu)) as relations:
        assert past + new == new + other + 1
    assert len(relations) == 1


def test_an_equation_that_holds_for_all_sizes_is_no_relation() -> None:
    """torch does not see that a cut tensor and the rest have all rows."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    rows, new = (mode.from_tensor(torch.ones(n)).shape[0] for n in (9, 4))
    for limit, count in ((6, 0), (7, 1)):
        with refuse_guards(mode, Graph().call_function(torch.relu)) as relations:
            assert torch.sym_min(rows, 6) + torch.sym_max(rows - limit, 0) + new == rows + new - limit + 6
        assert len(relations) == count


def test_a_number_of_elements_is_not_0() -> None:
    mode, (rows, columns) = _sizes()
    with refuse_guards(mode, Graph().call_function(torch.relu)):
        assert rows * (columns // 2) != 0


def test_a_length_that_must_equal_a_sum() -> None:
    """Attention needs as many keys as values. torch.export does not check this, so the export warns of the relation."""

    class Attention(nn.Module):
        def forward(self, x: Tensor, past: Tensor, keys: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, keys, torch.cat([past, x], 2))

    def example(new: int, past: int) -> tuple[Tensor, ...]:
        return tuple(torch.randn(2, 2, size, 4) for size in (new, past, past + new))

    shapes = ({2: "new"}, {2: "past"}, {2: "total"})
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"correct only where .*(total.*past|past.*total)"):
        program = fx_onnx.export(Attention().eval(), example(3, 5), dynamic_shapes=shapes)
    for sizes in ((3, 5), (1, 7), (4, 2)):
        inputs = example(*sizes)
        torch.testing.assert_close(program(*inputs)[0], Attention()(*inputs))


def test_sizes_that_an_operator_requires_to_be_equal_may_have_two_names() -> None:
    class Attention(nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(query, key, value)

    example = tuple(torch.randn(2, 2, n, 4) for n in (3, 5, 5))
    shapes = tuple({2: name} for name in ("queries", "keys", "values"))
    program = fx_onnx.export(Attention().eval(), example, dynamic_shapes=shapes)
    other = tuple(torch.randn(2, 2, n, 4) for n in (4, 7, 7))
    torch.testing.assert_close(program(*other)[0], Attention()(*other))
