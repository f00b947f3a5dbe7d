"""copy.deepcopy in the forward copies tensors, and refuses a write to memory that the copies share."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close


class Copies(nn.Module):
    def __init__(self, function: Callable[[Copies, Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("count", torch.ones(4))
        self.plain, self.function = torch.ones(4), function
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def written(value: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a value, and a deep copy of it that has been written to."""
    return value, copy.deepcopy(value).add_(1)


def a_container(_: Copies, x: Tensor) -> Any:
    first = {"parts": [x * 2, 3], "size": x.shape}
    second = copy.deepcopy(first)
    second["parts"][0].mul_(second["size"][0])
    return first["parts"][0], second["parts"][0]


def one_tensor_twice(_: Copies, x: Tensor) -> Any:
    first, second = copy.deepcopy([x, x])
    first.add_(1)
    return second


def views(_: Copies, x: Tensor) -> Any:
    rows, flat = copy.deepcopy((y := x + 1, y.view(-1)))
    return rows * 2, flat * 3


def a_cache(model: Copies, x: Tensor) -> Any:
    cache = pytest.importorskip("transformers").DynamicCache()
    keys, values = model.linear(x).view(-1, 2, 1, 2).split(1, dim=1)
    cache.update(keys, values, 0)
    other = copy.deepcopy(cache)
    other.update(keys + 1, values, 0)
    return cache.layers[0].keys, other.layers[0].keys


FUNCTIONS: dict[str, Callable[[Copies, Tensor], Any]] = {
    "an input": lambda _, x: written(x),
    "a result": lambda model, x: written(model.linear(x)),
    "integers": lambda _, x: written(x.long()),
    "a transposed tensor": lambda _, x: written(x.T),
    "a buffer": lambda model, x: (*written(model.count), x + 1),
    "a weight": lambda model, x: (*written(model.linear.weight), x + 1),
    "a constant": lambda model, x: (*written(model.plain), x + 1),
    "a module": lambda model, x: copy.deepcopy(model.linear)(x),
    "a module with buffers": lambda model, x: copy.deepcopy(model.norm)(x),
    "an expanded tensor": lambda _, x: copy.deepcopy(x[0].expand(3, 4)) + 1,
    "a container": a_container,
    "one tensor twice": one_tensor_twice,
    "views": views,
    "a cache": a_cache,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_deep_copy(name: str, dynamic: bool) -> None:
    module = Copies(FUNCTIONS[name]).eval()
    program = fx_onnx.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: "n"},) if dynamic else None)
    for x in [torch.randn(3, 4)] + [torch.randn(5, 4)] * dynamic:
        want = module(x.clone())
        assert_close(program(x), want if isinstance(want, tuple) else (want,))


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: copy.deepcopy((x, x.view(-1)))[1].add_(1),
        lambda _, x: copy.deepcopy({"first": x[:1], "all": x})["first"][0].fill_(1),
        lambda _, x: copy.deepcopy(x[0].expand(3, 4))[0].add_(1),
    ],
)
def test_a_write_to_memory_that_copies_share_is_refused(function: Callable[[Copies, Tensor], Any]) -> None:
    with pytest.raises(fx_onnx.CaptureError, match=r"writes in place .*copy\.deepcopy of tensors that share memory"):
        fx_onnx.export(Copies(function).eval(), (torch.randn(3, 4),))
