"""The private names of torch that act on a trace exist in the installed version, and do what they say."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fx_onnx.core import trace_private


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


def test_without_a_trace_nothing_is_recorded() -> None:
    assert not trace_private.is_recorded(torch.ones(2)) and trace_private.recorded_node(torch.ones(2)) is None
