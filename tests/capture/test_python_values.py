"""Which values of Python are compared before and after a forward, and what counts as a change."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import fx_onnx
from fx_onnx.capture.python_values import RANDOM, PythonState, changed_leaves, kind_of_change

TOTAL = [0]


class Config:
    def __init__(self) -> None:
        self.parent, self.sizes = self, {"rows": [1]}


class Batches:
    """An iterator of the user's that has no length before its first use, as a loader of lightning after a training."""

    def __init__(self) -> None:
        self.position: int | None = None

    def __iter__(self) -> Batches:
        self.position = 0
        return self

    def __next__(self) -> int:
        self.position = len(self) + 1
        return self.position

    def __len__(self) -> int:
        if self.position is None:
            raise RuntimeError("call iter() first")
        return self.position


class Model(nn.Module):
    shared = 0

    def __init__(self) -> None:
        super().__init__()
        self.config, self.array, self.tensors = Config(), np.zeros(2), (torch.zeros(2),)
        self.steps, self.left, self.numbers = itertools.count(), iter([1, 2]), self.generate()
        self.batches = Batches()
        self.inner = nn.Linear(2, 2)
        self.inner.config = self.config  # type: ignore[assignment]

    def generate(self) -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    def forward(self) -> int:
        return TOTAL[0]


def change_shared(model: Model) -> None:
    Model.shared += 1


@pytest.mark.parametrize(
    ("change", "name", "kind"),
    [
        (lambda model: model.config.sizes["rows"].append(2), "config", "Python number"),
        (lambda model: vars(model.config).update(new="a"), "config", "Python value"),
        (lambda model: model.array.fill(3), "array", "NumPy array"),
        (lambda model: vars(model).update(tensors=(torch.zeros(2),)), "tensors", "tensor"),
        (lambda model: next(model.steps), "steps", "Python value"),
        (lambda model: next(model.left), "left", "Python number"),
        (lambda model: next(model.numbers), "numbers", "Python number"),
        (lambda model: next(iter(model.batches)), "batches", "Python number"),
        (lambda model: TOTAL.append(3), "TOTAL", "Python number"),
        (change_shared, "shared", "Python number"),
        (lambda model: np.random.rand(), RANDOM[1].name, "Python value"),
    ],
)
def test_changes(change: Callable[[Any], object], name: str, kind: str) -> None:
    model = Model()
    before = PythonState(model).values
    assert not any(changed_leaves(value, PythonState(model).values[place]) for place, value in before.items())
    change(model)
    after = PythonState(model).values
    changes = [(place.name, changed_leaves(before[place], after[place])) for place in before]
    found = {place: kind_of_change(pairs[0]) for place, pairs in changes if pairs}
    assert found in ({name: kind}, {name: "Python number"})  # the position of NumPy's generator changes first


def test_places_and_tensors() -> None:
    values = PythonState(Model()).values
    names = {place.name: str(place) for place in values}
    assert (names["array"], names["shared"], names["TOTAL"]) == ("Model", "the class Model", f"{__name__} (Model)")
    tensors = [each for found in values.values() for each in found.values() if isinstance(each, torch.Tensor)]
    assert [tensor.shape for tensor in tensors] == [(2,)]


@pytest.mark.parametrize(("value", "kind"), [(3, "Python number"), (None, "Python value"), (torch.zeros(1), "tensor")])
def test_a_value_that_appears(value: object, kind: str) -> None:
    ((before, now),) = changed_leaves({}, {(): value})
    assert now is value and kind_of_change((before, now)) == kind


def test_what_has_changed_is_restored() -> None:
    model, total, shared = Model(), list(TOTAL), Model.shared
    state, config, rows = PythonState(model), model.config, model.config.sizes["rows"]
    model.config.sizes["rows"].append(2)
    vars(model.config).update(new="a")
    model.array.fill(3)
    model.inner.extra, model.tensors = 1, ()  # type: ignore[assignment]
    next(model.left)
    model.inner.register_forward_hook(print)
    TOTAL.append(3)
    Model.shared += 1
    state.restore()
    assert not model.inner._forward_hooks
    assert len(TOTAL) > len(total) and Model.shared > shared  # another thread may have changed them
    state.restore(shared=state.values)
    assert model.config is config is model.inner.config and set(vars(config)) == {"parent", "sizes"}
    assert config.sizes["rows"] is rows and rows == [1] and config.parent is config
    assert model.array.tolist() == [0, 0] and len(model.tensors) == 1 and not hasattr(model.inner, "extra")
    assert list(model.left) == [1, 2] and total == TOTAL and Model.shared == shared


def test_some_places_are_kept() -> None:
    model = Model()
    state = PythonState(model)
    model.array, model.tensors, model.inner.extra = np.ones(2), (), 1  # type: ignore[assignment]
    state.restore(kept={place for place in PythonState(model).values if place.name in ("array", "extra")})
    assert model.array.tolist() == [1, 1] and len(model.tensors) == 1 and model.inner.extra == 1


class Keeper:
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.last: Any = None
        self.all: list[Any] = []

    def __call__(self, module: nn.Module, args: Any, result: Any) -> None:
        """Keeps a result as the last one, and with the others."""
        self.last = result
        self.all.append(result)

    def keep(self, module: nn.Module, args: Any, result: Any) -> None:
        """Does the same."""
        self(module, args, result)


FEATURES: dict[str, Any] = {}


def keep_globally(module: nn.Module, args: Any, result: Any) -> None:
    """Keeps a result in a global variable."""
    FEATURES["last"] = result


@pytest.mark.parametrize("kind", ["object", "method", "closure", "partial", "global"])
@pytest.mark.parametrize("is_called", [False, True])
def test_what_hooks_keep_is_restored(kind: str, is_called: bool) -> None:
    """An export is no call of the model: no traced tensor stays, and no list grows."""
    model, keeper, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), Keeper(), torch.randn(2, 3)
    FEATURES.clear()
    hooks: dict[str, Any] = {
        "object": keeper,
        "method": keeper.keep,
        "closure": lambda module, args, result: keeper.all.append(result),
        "partial": functools.partial(Keeper.keep, keeper),
        "global": keep_globally,
    }
    model[0].register_forward_hook(hooks[kind])
    if is_called:
        model(x)
    before = keeper.last, [*keeper.all], dict(FEATURES)
    fx_onnx.export(model.eval(), (x,), dynamic_shapes=({0: "batch"},))
    after = keeper.last, keeper.all, FEATURES
    pairs = zip(pytree.tree_leaves(before), pytree.tree_leaves(after), strict=True)
    assert all(old is new for old, new in pairs)
