"""A captured program runs node by node without writes in place, and a part of it runs alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fx_onnx.verification.model_parts import attributes_of, executed, functional_program, slice_to


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,)) + x.exp()


def test_execution_and_a_slice() -> None:
    x = torch.rand(3)
    program = functional_program(torch.export.export(Model(), (x,)))
    module = torch.fx.GraphModule(attributes_of(program, program.graph), program.graph)
    values = dict(executed(module, [x]))
    by_name = {node.name: node for node in program.graph.nodes}
    assert torch.equal(values[by_name["mul"]], x * 2)
    assert torch.equal(values[by_name["add_"]], x * 2 + 1)
    assert torch.equal(values[by_name["output"]][0], (x * 2 + 1).sin() + x.exp())
    target, boundary = by_name["getitem"], {by_name["add_"]}
    part, arguments, inside = slice_to(program, target, boundary)
    given = {"x": x, "add_": torch.zeros(3)}
    assert torch.equal(part(*(given[node.name] for node in arguments)), torch.zeros(3).sin())
    assert "mul" not in {node.name for node in inside} and target in inside
