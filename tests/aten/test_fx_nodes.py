"""Facts about FX nodes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_onnx.aten.fx_nodes import (
    FlatCall,
    describe,
    fake_mode,
    fake_results,
    is_effect,
    is_symbolic,
    makes_symbols,
    meta_arguments,
    region_body,
    source_line,
)
from tests.aten.small_programs import captured


def test_a_source_line_is_in_the_users_code() -> None:
    program = captured(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    (node,) = [node for node in program.graph.nodes if node.op == "call_function"]
    assert "modules.py:" in source_line(node)
    assert source_line(next(iter(program.graph.nodes))) == ""


def _call(function: Any, *inputs: Tensor, dynamic: bool = False) -> Any:
    """Returns the last call of a captured function."""
    program = captured(function, *inputs, dynamic=dynamic)
    return [node for node in program.graph.nodes if node.op == "call_function"][-1]


def test_a_description_shows_the_arguments_and_the_source_line() -> None:
    text = describe(_call(lambda x: torch.add(x, 2.0), torch.randn(3, 4)))
    assert text.startswith("add = aten.add.Tensor(tensors_0: float32[3, 4], 2.0) (at ")
    assert "modules.py:" in text


def test_meta_arguments_are_fake_tensors_and_numbers() -> None:
    (value, number), kwargs = meta_arguments(_call(lambda x: torch.add(x, 2.0), torch.randn(3)))
    assert type(value).__name__ == "FakeTensor" and tuple(value.shape) == (3,)
    assert number == 2.0 and kwargs == {}


def test_a_flat_call_is_made_again_with_other_values() -> None:
    call = FlatCall.of(_call(lambda x, y: torch.cat([x, y, x], 0), torch.zeros(1), torch.zeros(1)))
    args, kwargs = call.bind([torch.ones(1), torch.zeros(2)])
    assert torch.cat(*args, **kwargs).tolist() == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (lambda x: x + 1.0, lambda x: x + 1.0, True),
        (lambda x: x + 1.0, lambda x: x + 1, False),
        (lambda x: x * 0.0, lambda x: x * -0.0, False),
        (lambda x: x[0] * 2, lambda x: x[:1] * 2, False),
    ],
)
def test_equal_calls_have_equal_keys(first: Any, second: Any, equal: bool) -> None:
    x = torch.randn(2, 3)
    assert (FlatCall.of(_call(first, x)).key == FlatCall.of(_call(second, x)).key) is equal


def test_kinds_of_nodes() -> None:
    def function(x: Tensor) -> Tensor:
        torch._assert_async(x.sum() > 0)
        return x.nonzero() * x.shape[0]

    nodes = list(captured(function, torch.ones(3), dynamic=True).graph.nodes)
    assert [node.name for node in nodes if is_effect(node)] == ["_assert_async", "_assert_scalar_default"]
    assert next(str(node.target) for node in nodes if is_symbolic(node)) == "aten.sym_size.int"
    assert [node.name for node in nodes if makes_symbols(node)] == ["nonzero"]


def test_a_region_has_a_body_and_operands() -> None:
    class Region(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x + 1
            with torch.no_grad():
                return y * 2

    graph = torch.export.export(Region(), (torch.randn(2),)).graph
    (region,) = [region for node in graph.nodes if (region := region_body(node)) is not None]
    assert [node.target for node in region[0].nodes if node.op == "call_function"] == [torch.ops.aten.mul.Tensor]
    assert [operand.name for operand in region[1]] == ["add"]


def test_a_graph_without_tensors_has_a_new_fake_mode() -> None:
    assert fake_mode(torch.fx.Graph()) is not fake_mode(torch.fx.Graph())
    call = _call(torch.relu, torch.randn(2))
    assert fake_mode(call.graph) is call.meta["val"].fake_mode and fake_results(call) == [call.meta["val"]]
