"""The annotated attributes of a module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fx_onnx.compat.module_attributes import annotated_attributes


class Base(nn.Module):
    flag: bool = True
    sizes: list[int]
    training: bool


class Derived(Base):
    mixed: tuple[float, ...]
    empty: list[int]
    nothing: int | None
    weight: Tensor
    names: list[str]
    unset: int

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.mixed, self.empty, self.nothing = [1, 2], (1, 0.5), [], None
        self.weight, self.names = torch.ones(2), ["a", "b"]


def test_which_variables_count() -> None:
    found = annotated_attributes(nn.Sequential(Derived()), "0")
    assert found == {"flag": 1, "sizes": [1, 2], "mixed": [1.0, 0.5], "names": ["a", "b"]}


def test_the_modules_of_torch() -> None:
    assert annotated_attributes(nn.Linear(2, 3), "") == {"in_features": 2, "out_features": 3}


def test_what_has_no_module() -> None:
    assert annotated_attributes(nn.Linear(2, 3), "no.such") == {}
    assert annotated_attributes(object(), "") == {}
