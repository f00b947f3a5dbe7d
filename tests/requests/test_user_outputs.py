"""Which results of a module are graph outputs: tensors, sizes and numbers, but not None."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import export

import fx_onnx
from fx_onnx.requests.user_outputs import graph_leaves, is_graph_output, result_specs


class Mixed(nn.Module):
    """Returns constants of every kind before, between and after tensors, and writes a buffer and an input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> dict[str, object]:
        self.count.add_(1)
        x.add_(1)
        y = x * self.count
        return {"n": 2, "none": None, "y": y, "flag": True, "rows": x.shape[0], "again": y, "half": 0.5, "x": x}


NAMES = ["n", "y", "flag", "rows", "again", "half", "x_out"]
WRITTEN = ["count_out", "x_out_1"]


def test_every_leaf_but_none() -> None:
    program = export(Mixed(), (torch.ones(2, 3),))
    leaves = list("abcdefgh")
    assert graph_leaves(program, leaves) == list("acdefgh")
    assert [is_graph_output(spec) for spec in result_specs(program)] == [leaf != "b" for leaf in leaves]


@pytest.mark.parametrize("dims", [None, {"x": {0: "rows"}}])
def test_names_values_and_structure_agree_with_the_module(dims: object) -> None:
    program = fx_onnx.export(Mixed().eval(), (torch.ones(2, 3),), dynamic_shapes=dims)
    assert [value.name for value in program.model.graph.outputs] == [*NAMES, *WRITTEN]
    result = program.verify(torch.rand(2, 3))
    assert result.ok and [each.name for each in result.outputs] == [*NAMES, *WRITTEN]
    found, expected = program.call_structured(torch.ones(2, 3)), Mixed()(torch.ones(2, 3))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_constant_that_the_module_returns_otherwise_is_a_difference() -> None:
    program = fx_onnx.export(Mixed().eval(), (torch.ones(2, 3),))
    module = Mixed()
    module.forward = lambda x, forward=module.forward: forward(x) | {"n": 2.5}
    result = fx_onnx.verify(program, (torch.ones(2, 3),), module=module)
    assert [each.name for each in result.outputs if not each.ok] == ["n"]
