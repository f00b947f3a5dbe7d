"""Functions of Python modules that become one operator, because custom_translation_table has an entry for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close


def running_sum(x: Tensor, state: Tensor, *, factor: float = 1.0, with_state: bool = True, **_: Any) -> Any:
    """Loops over the tokens (batch, token, channel), as a recurrence does."""
    results = []
    for place in range(x.shape[1]):
        state = state + factor * x[:, place]
        results.append(state)
    return torch.stack(results, 1), state if with_state else None


def windows(x: Tensor, size: int) -> Tensor:
    """Returns one row fewer for each number in the size beyond 1."""
    return torch.stack([x[i : i + size].sum(0) for i in range(x.shape[0] - size + 1)])


def twice(x: Tensor) -> Tensor:
    """Returns a size that is no size of an argument plus a number."""
    return torch.cat([x, x]) if int(x.shape[0]) else x


def adds_in_place(x: Tensor) -> Tensor:
    return x.add_(1)


def scan(op: Any, x: Any, state: Any, factor: float, with_state: bool) -> Any:
    """Translates running_sum."""
    sums = op.Add(op.CumSum(op.Mul(x, factor), 1), op.Unsqueeze(state, [1]))
    last = op.Squeeze(op.Slice(sums, [-1], [2**31], [1]), [1])
    return [sums, last] if with_state else sums


def sums_of_windows(op: Any, x: Any, size: int) -> Any:
    """Translates windows for a size of 2."""
    assert size == 2
    return op.Add(op.Slice(x, [0], [-1], [0]), op.Slice(x, [1], [2**31], [0]))


class Recurrence(nn.Module):
    """Calls a function in both forms of its results."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        sums, last = running_sum(x, state, factor=0.5, unused=None)
        more, none = running_sum(sums, last, with_state=False)
        assert none is None
        return more, last


class Call(nn.Module):
    """Calls the function of this name in this file."""

    def __init__(self, name: str, *numbers: int) -> None:
        super().__init__()
        self.name, self.numbers = name, numbers

    def forward(self, x: Tensor) -> Tensor:
        return globals()[self.name](x, *self.numbers)


def test_a_loop_of_any_length() -> None:
    module, axes = Recurrence().eval(), {0: "batch", 1: "token"}
    example = torch.randn(2, 3, 4), torch.randn(2, 4)
    program = fx_onnx.export(
        module, example, dynamic_shapes=(axes, {0: "batch"}), custom_translation_table={running_sum: scan}
    )
    assert [node.op_type for node in program.model.graph].count("CumSum") == 2
    assert not program.findings
    for tokens in (1, 3, 20):
        given = torch.randn(5, tokens, 4), torch.randn(5, 4)
        assert_close(program(*given), module(*given))


def test_a_size_is_one_of_the_arguments_plus_a_number() -> None:
    example, table = torch.randn(5, 2), {windows: sums_of_windows}
    program = fx_onnx.export(
        Call("windows", 2).eval(), (example,), dynamic_shapes=({0: "row"},), custom_translation_table=table
    )
    assert str(program.model.graph.outputs[0].shape[0]) == "row-1"
    assert_close(program(torch.ones(9, 2)), torch.full((8, 2), 2.0))


def test_without_an_entry_it_is_traced() -> None:
    program = fx_onnx.export(Recurrence().eval(), (torch.randn(2, 3, 4), torch.randn(2, 4)))
    assert "CumSum" not in [node.op_type for node in program.model.graph]


@pytest.mark.parametrize(
    ("name", "message"),
    [("twice", "sizes of the results of twice are not sizes"), ("adds_in_place", "adds_in_place writes to its arg")],
)
def test_what_cannot_be_an_operator_is_refused(name: str, message: str) -> None:
    table = {globals()[name]: lambda op, x: op.Identity(x)}
    with pytest.raises(fx_onnx.CaptureError, match=message):
        fx_onnx.export(
            Call(name).eval(), (torch.randn(3, 2),), dynamic_shapes=({0: "row"},), custom_translation_table=table
        )


def test_a_translation_has_the_parameters_of_the_function() -> None:
    with pytest.raises(fx_onnx.ArgumentError, match=r"of windows cannot take the arguments: missing"):
        fx_onnx.export(
            Call("windows", 2).eval(), (torch.ones(3, 2),), custom_translation_table={windows: lambda op, x, y, z: x}
        )


def test_a_local_function_is_no_key() -> None:
    def local(x: Tensor) -> Tensor:
        return x

    with pytest.raises(fx_onnx.ArgumentError, match="a function of a Python module, not"):
        fx_onnx.export(nn.ReLU(), (torch.ones(3),), custom_translation_table={local: lambda op, x: x})
