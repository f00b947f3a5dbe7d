"""Control flow that torch can run is captured for any size, and torch's functions are restored afterwards."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._higher_order_ops as control_flow
from torch import Tensor, nn

import fx_onnx
from fx_onnx.capture.patches.patching import apply_patches
from fx_onnx.capture.patches.torch_functions import PATCHES
from tests.compare import assert_close
from tests.torch_versions import has

BRANCHES = tuple(patch for patch in PATCHES if patch.target.endswith(":cond"))


class Net(nn.Module):
    def __init__(self, function: Callable[["Net", Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.linear = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def check(function: Callable[[Net, Tensor], Any], *rows: int) -> None:
    """Exports with dynamic rows and compares the results at several sizes."""
    module = Net(function).eval()
    program = fx_onnx.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},))
    assert program.model.graph.inputs[0].shape == ("rows", 4)
    for count in (3, *rows):
        for sign in (1, -1):
            x = (torch.rand(count, 4) + 0.1) * sign
            # With gradients, torch does not run branches whose results alias operands; an older one not without either.
            with torch.no_grad(), apply_patches(() if has("aliases of operands") else BRANCHES):
                assert_close(program(x), module(x))


def same(net: Net, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x, lambda x: x * 2, (x,))


def view(net: Net, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.view(-1), lambda x: x.flip(0).view(-1), (x,))


def swapped(net: Net, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x, y: {"a": x, "b": y}, lambda x, y: {"a": y, "b": x}, (x, net.linear(x)))


def one_twice(net: Net, x: Tensor) -> Any:
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        return y, y

    return control_flow.cond(x.sum() > 0, twice, lambda x: (x, x), (x,))


@pytest.mark.parametrize("function", [same, view, swapped, one_twice])
def test_branches_whose_results_alias_operands(function: Callable[[Net, Tensor], Any]) -> None:
    check(function, 6)


def prefixes(combine: Callable[[Any, Any], Any], xs: Any, dim: int = 0, reverse: bool = False) -> Any:
    return control_flow.associative_scan(combine, xs, dim, reverse, combine_mode="generic")


def recurrence(net: Net, x: Tensor) -> Any:
    """The recurrence h = a * h + b of state space models."""

    def combine(first: dict[str, Tensor], second: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"a": first["a"] * second["a"], "b": second["a"] * first["b"] + second["b"]}

    return prefixes(combine, {"a": x.sigmoid(), "b": x})


@pytest.mark.parametrize(
    "function",
    [
        recurrence,
        lambda net, x: prefixes(lambda a, b: a + b, x, reverse=True),
        lambda net, x: prefixes(lambda a, b: a @ b, x[:, :, None] * x[:, None] * 0.3),
        lambda net, x: prefixes(lambda a, b: (b[0], a[1] | b[1]), (x, x > 0.5)),
        lambda net, x: prefixes(lambda a, b: a * b, x, dim=-1),
    ],
    ids=["recurrence", "reverse", "matrices", "last and any", "of static length"],
)
def test_associative_scans_of_any_length(function: Callable[[Net, Tensor], Any]) -> None:
    check(function, 1, 2, 8)


def test_torch_is_restored_after_an_error() -> None:
    before = torch.cond, control_flow.associative_scan
    with pytest.raises(ZeroDivisionError), apply_patches(PATCHES):
        assert before[0] not in (torch.cond, control_flow.cond)
        raise ZeroDivisionError
    assert (torch.cond, control_flow.associative_scan) == before
