"""The assertions that torch records as operators are findings, in the program itself and in the body of a branch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fx_onnx

aten = torch.ops.aten
X = torch.tensor([0.5, 0.25, 2.0])


def root(x: Tensor) -> Tensor:
    aten._assert_async.msg((x >= 0).all(), "negative")
    return x.sqrt()


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return root(x)


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 1, root, lambda x: x + 1, (x,))


class States(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        count = (x > 0).nonzero().shape[0]
        torch._check(count > 1)
        return x[:count]


@pytest.mark.parametrize("is_program", [False, True])
@pytest.mark.parametrize("kind", [Root, Branch])
def test_an_operator_that_asserts(kind: type[nn.Module], is_program: bool) -> None:
    model = kind().eval()
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="raises an exception if a condition on data holds"):
        program = fx_onnx.export(torch.export.export(model, (X,)) if is_program else model, (X,))
    (finding,) = program.findings
    assert finding.id == "FX1111" and finding.place.rpartition(":")[0] == __file__
    torch.testing.assert_close(program(X)[0], model(X))


def test_a_statement_of_what_is_always_true() -> None:
    program = fx_onnx.export(States().eval(), (X,), dynamic_shapes=({0: "n"},))
    assert not program.findings
