"""The private names of torch that act on a trace exist in the installed version, and do what they say."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fx_onnx.torch_internals import trace_private
from fx_onnx.torch_internals.torch_private import FakeTensorMode


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y, plain = x + 1, x.detach()
        node = trace_private.recorded_node(y)
        self.found = (trace_private.is_recorded(y), node is not None and str(node.target))
        with trace_private.undispatched():
            torch.Tensor.data.__set__(plain, y.detach())  # type: ignore[attr-defined]
        trace_private.share_trace(y, plain, again=True)
        self.is_shared = trace_private.recorded_node(plain) is node
        return plain * 2


def test_a_trace_is_read_and_shared() -> None:
    model, found = Model(), []
    model.register_forward_hook(lambda *_: found.extend([model.found, model.is_shared]))
    program = torch.export.export(model, (torch.ones(2),), strict=False)
    assert found == [(True, "aten.add.Tensor"), True]
    assert [str(node.target) for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)]
    assert program.module()(torch.ones(2)).tolist() == [4, 4]


class Compared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        is_filled: Any = x.shape[0] != 0
        node = trace_private.recorded_number(is_filled.node)
        self.found = node is not None and (node.target, node.args[0].meta["val"].node.expr, node.args[1])
        self.symbol = x.shape[0].node.expr
        return x * 2


def test_a_comparison_is_read() -> None:
    model, found = Compared(), []
    model.register_forward_hook(lambda *_: found.extend([model.found, model.symbol]))
    torch.export.export(model, (torch.ones(2),), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    assert found[0] == (operator.ne, found[1], 0)


def test_without_a_trace_nothing_is_recorded() -> None:
    assert not trace_private.is_recorded(torch.ones(2)) and trace_private.recorded_node(torch.ones(2)) is None
    assert trace_private.recorded_number(object()) is None


def test_fake_tensors_call_another_function() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def of_columns(kernel: Any) -> Any:
        return lambda mode, operator, input, dim, index: kernel(mode, operator, input, 1, index)

    with trace_private.replaced_fake_kernels({torch.ops.aten.select.int: of_columns}):
        assert torch.select(mode.from_tensor(torch.ones(4, 2)), 0, 1).shape == (4,)
    assert torch.select(mode.from_tensor(torch.ones(5, 3)), 0, 1).shape == (3,)  # torch keeps the results of one shape


@pytest.mark.parametrize(("index", "position"), [(2, 2), (5, 4), (-1, 3), (-9, 0)])
def test_a_bound_is_a_position_in_its_axis(index: int, position: int) -> None:
    assert trace_private.slice_bound(4, index) == position
