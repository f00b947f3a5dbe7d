"""An export runs the user's module at most once with real tensors, no larger than the example.

The runs of all modules of a class are counted, so that copies of the module count too.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake
from torch.utils import _pytree as pytree

import fx_onnx
from tests.models.families import FAMILIES
from tests.models.registry import CASES


class Job(NamedTuple):
    """A module, and the arguments of its export."""

    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    dynamic_shapes: Any = None


@contextmanager
def eager_runs(kind: type[nn.Module]) -> Iterator[list[int]]:
    """Yields a list: the number of elements in the arguments of each run, by a module of the class, of real tensors.

    A run within another one does not count. Where no argument is a tensor, the weights tell whether tensors are real.
    """
    found: list[int] = []
    running: list[nn.Module] = []
    original = kind.forward

    @functools.wraps(original)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not running and any(map(_has_values, given or [*self.parameters(), *self.buffers()])):
            found.append(sum(leaf.numel() for leaf in given))
        running.append(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            running.pop()

    with mock.patch.object(kind, "forward", forward):
        yield found


def _has_values(tensor: Tensor) -> bool:
    # The storage tells the meta device also where a mode lets a tensor tell another one.
    return tensor.untyped_storage().device.type != "meta" and not is_fake(tensor)


FEW = 2**12  # elements


def check(job: Job, most: int = 3) -> None:
    """Exports a module without verification, and compares the number and the size of its runs with what is allowed."""
    module = job.module.eval()
    elements = sum(x.numel() for x in pytree.tree_leaves((job.args, job.kwargs)) if isinstance(x, Tensor))
    with eager_runs(type(module)) as runs:
        options = {"kwargs": job.kwargs, "dynamic_shapes": job.dynamic_shapes, "optimize": False, "verbose": False}
        fx_onnx.export(module, job.args, **options)
    assert len(runs) <= most, f"{len(runs)} runs instead of {most}"
    assert all(each <= max(elements, FEW) for each in runs), f"runs with {runs} elements, the example has {elements}"


# ---------------------------------------------------------------- the counter itself


def test_copies_and_real_tensors_count() -> None:
    module, x = nn.Sequential(nn.Sequential(nn.Linear(4, 2))), torch.ones(3, 4)
    with eager_runs(nn.Sequential) as runs:
        module(x)
        copy.deepcopy(module)(x[:2])
        torch.func.functional_call(module, dict(module.named_parameters()), (x,))
    assert runs == [12, 8, 12]


def test_a_trace_does_not_count() -> None:
    for module in (nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), nn.Sequential(nn.ReLU())):
        with eager_runs(nn.Sequential) as runs:
            torch.export.export(module.eval(), (torch.ones(3, 4),), strict=False)
            copy.deepcopy(module).to("meta")(torch.ones(3, 4, device="meta"))
        assert runs == []


# ---------------------------------------------------------------- modules with Python state


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class CountingBuffer(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class CountingClass(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return x + 1


class Appending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(2)
        return x * len(self.seen)


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = x * 2
        return self.last + 1


class Caching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if 4 not in self.tables:
            self.tables[4] = torch.arange(4.0).cos()
        return x * self.tables[4]


class CachingBySize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.length, self.table = 0, torch.zeros(0, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > self.length:
            self.length = x.shape[0]
            self.table = torch.ones(self.length, 4)
        return x * self.table[: x.shape[0]]


class Memoized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.table(4)

    @functools.cache  # noqa: B019
    def table(self, width: int) -> Tensor:
        return torch.arange(float(width))


class Printing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        print("shape", x.shape)
        return x + 1


class Logging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log: dict[str, Any] = {"calls": 0, "sizes": []}

    def forward(self, x: Tensor) -> Tensor:
        self.log["calls"] += 1
        self.log["sizes"].append(x.shape[0])
        return x + 1


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class PythonRandom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * random.random()


class NumpyRandom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * float(np.random.rand())


class Iterating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = iter(range(100))

    def forward(self, x: Tensor) -> Tensor:
        return x * next(self.steps)


class Alternating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.is_odd = False

    def forward(self, x: Tensor) -> Tensor:
        self.is_odd = not self.is_odd
        return x + 1 if self.is_odd else x - 1


STATES = (
    Counting, CountingBuffer, CountingClass, Appending, Keeping, Caching, CachingBySize, Memoized, Printing, Logging,
    Random, PythonRandom, NumpyRandom, Iterating, Alternating,
)  # fmt: skip


@pytest.mark.parametrize("kind", STATES, ids=lambda kind: kind.__name__)
def test_python_state(kind: type[nn.Module]) -> None:
    check(Job(kind(), (torch.ones(3, 4),), dynamic_shapes=({0: "n"},)), most=11)


@pytest.mark.parametrize("kind", STATES, ids=lambda kind: kind.__name__)
def test_python_state_with_static_sizes(kind: type[nn.Module]) -> None:
    check(Job(kind(), (torch.ones(3, 4),)), most=11)


# ---------------------------------------------------------------- sizes


class Lambda(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Any:
        return self.function(x * self.weight)


HEIGHT_WIDTH = ({0: "batch", 2: "height", 3: "width"},)
IMAGES = {
    "convolution": nn.Conv2d(3, 4, 3, padding=1),
    "strides and a pool": nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 2)),
    "upsampling": nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(scale_factor=2, mode="bilinear")),
    "transposed": nn.Sequential(nn.ConvTranspose2d(3, 4, 2, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
}


@pytest.mark.parametrize("name", IMAGES)
def test_dynamic_height_and_width(name: str) -> None:
    check(Job(IMAGES[name], (torch.ones(1, 3, 12, 16),), dynamic_shapes=HEIGHT_WIDTH))


FUNCTIONS = {
    "a branch on 1": lambda x: x if x.shape[0] == 1 else x + 1,
    "an empty input": lambda x: x if x.numel() == 0 else x.sum(0),
    "squeeze": lambda x: x.squeeze(0) * 2,
    "a branch on 8": lambda x: x if x.shape[0] > 8 else x + 1,
    "a list": lambda x: list(x.split(2)),
}


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_of_size_1(name: str, size: int) -> None:
    check(Job(Lambda(FUNCTIONS[name]), (torch.ones(size, 4),), dynamic_shapes=({0: "n"},)))


class Sum(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.sum(1) + F.relu(y).sum(1)


def test_all_sizes_of_the_example_are_1() -> None:
    shapes = ({0: "n", 1: "m"}, {0: "n", 1: "k"})
    check(Job(Sum(), (torch.ones(1, 1), torch.ones(1, 1)), dynamic_shapes=shapes))


def test_weights_above_1_gb_are_not_run() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.empty(2**28 + 1))  # no page of it is ever read or written

        def forward(self, x: Tensor) -> Tensor:
            return x * self.table.shape[0] if x.shape[0] == 1 else x + 1

    check(Job(Large(), (torch.ones(3, 4),), dynamic_shapes=({0: "n"},)), most=0)


# ---------------------------------------------------------------- models


def _case(name: str) -> Job:
    case = next(each for each in CASES if each.name == name)
    return Job(case.build(), *case.example(), case.dynamic_shapes)


def _family(name: str) -> Job:
    family = replace(next(each for each in FAMILIES if each.name == name), layers=1)
    module = family.build()
    inputs = family.examples(module)[0]
    return Job(module, (), inputs, family.dynamic_shapes(inputs))


MODELS: dict[str, Callable[[], Job]] = {
    **{name: functools.partial(_case, name) for name in ("unet_bilinear", "whisper_encoder")},
    **{name: functools.partial(_family, name) for name in ("bert", "gpt2", "llama", "t5", "whisper")},
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    check(MODELS[name]())
