"""Tests of the loop that torch.export traces like the rest of a forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.applications.traced_loops import while_loop


class _Model(nn.Module):
    """Iterates a body that reads a weight, an input, and a tensor of the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.config: dict[str, Any] = {"attention": "eager"}

    def forward(self, x: Tensor, y: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        before = x.sin()

        def body(step: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self.config["attention"] = "eager"  # dynamo refuses it in the body of torch.while_loop
            rows = value[:, :, None] @ y.expand(value.shape[0], 1, 4)  # torch takes another branch for one row
            return step + 1, (self.linear(value) + before[:, :1] * y + rows.mean(2)).tanh()

        if torch.compiler.is_exporting():
            return while_loop(lambda step, _: step < count, body, (torch.zeros_like(count), x))
        step, value = torch.tensor(0), x
        while step < count:
            step, value = body(step, value)
        return step, value


@pytest.mark.parametrize("opset", [13, 18, 24])
@pytest.mark.parametrize("shapes", [None, {"x": {0: "batch"}, "y": None, "count": None}])
@torch.no_grad()
def test_the_body_reads_tensors_around_it(opset: int, shapes: Any) -> None:
    model, y = _Model().eval(), torch.randn(4)
    program = fx_onnx.export(model, (torch.randn(3, 4), y, torch.tensor(2)), dynamic_shapes=shapes, opset_version=opset)
    for batch in (3,) if shapes is None else (1, 3, 5):
        for count in (0, 1, 7):
            args = torch.randn(batch, 4), y + count, torch.tensor(count)
            for got, want in zip(program(*args), model(*args), strict=True):
                torch.testing.assert_close(got, want)
    assert [node.op_type for node in program.model.graph].count("Loop") == 1


def test_a_batch_of_one_is_proven(recwarn: pytest.WarningsRecorder) -> None:
    args = (torch.randn(3, 4), torch.randn(4), torch.tensor(2))
    program = fx_onnx.export(_Model().eval(), args, dynamic_shapes={"x": {0: "batch"}, "y": None, "count": None})
    assert not list(recwarn) and not program.dims.conditions


class _Counting(nn.Module):
    """Counts its iterations in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        def body(step: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self.calls += 1
            return step + 1, value + self.calls

        if torch.compiler.is_exporting():
            return while_loop(lambda step, _: step < count, body, (torch.zeros_like(count), x))[1]
        for _ in range(int(count)):
            _, x = body(count, x)
        return x


def test_a_body_that_changes_python_values_is_told() -> None:
    with pytest.warns(UserWarning, match="changes the Python number 'calls'"):
        fx_onnx.export(_Counting().eval(), (torch.ones(3), torch.tensor(2)))
