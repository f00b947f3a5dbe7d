"""A forward that asks for the type or the text of a dynamic size has a finding at the line; others have none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.capture.size_questions import size_questions

SCALES = {"5": 1.0, "6": 2.0}


def module(forward: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    """Returns a module with a forward."""
    return type("Model", (nn.Module,), {"forward": forward, "__module__": __name__})().eval()


def asks_isinstance(self: Any, x: Tensor) -> Tensor:
    return x + 1 if isinstance(x.shape[0], int) else x


def asks_type(self: Any, x: Tensor) -> Tensor:
    n = x.size(0) * 2
    return x + 1 if type(n) is int else x


def matches(self: Any, x: Tensor) -> Tensor:
    rows, _ = x.shape
    match rows:
        case int():
            x = x + 1
    return x


def has_a_key(self: Any, x: Tensor) -> Tensor:
    key = f"{x.shape[0]}"
    return x * SCALES.get(key, 4.0)


def compares_text(self: Any, x: Tensor) -> Tensor:
    return x + 1 if str(x.shape) == "torch.Size([5, 4])" else x


def measures_text(self: Any, x: Tensor) -> Tensor:
    return x * len(str(x.shape[-1]))


def is_plain(x: Tensor, count: Any) -> bool:
    return isinstance(count, int) and x.ndim == 2


def asks_in_a_helper(self: Any, x: Tensor) -> Tensor:
    rows = x.shape[0]
    return x + 1 if is_plain(x, rows // 2) or is_plain(x, count=3) else x


def gives_no_size(self: Any, x: Tensor) -> Tensor:
    return x + x.shape[0] if is_plain(x, self.training) else x


def raises(self: Any, x: Tensor) -> Tensor:
    if x.ndim != 2:
        raise ValueError(f"{x.shape} is no matrix")
    logging.getLogger("model").debug("%s rows", f"{x.shape[0]}")
    return x


def asks_others(self: Any, x: Tensor) -> Tensor:
    sizes = [1, 2]
    return x + 1 if isinstance(sizes, list) and isinstance(x.shape, tuple) and str(len(sizes)) == "2" else x


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (asks_isinstance, 1),
        (asks_type, 2),
        (matches, 2),
        (has_a_key, 2),
        (compares_text, 1),
        (measures_text, 1),
        (asks_in_a_helper, is_plain),
        (gives_no_size, None),
        (raises, None),
        (asks_others, None),
    ],
)
def test_questions(function: Callable[[Any, Tensor], Tensor], line: Any) -> None:
    """The line counts from that of the function; a helper asks in its first line."""
    found = list(size_questions(module(function)))
    asking, line = (line, 1) if callable(line) else (function, line)
    places = [] if line is None else [f"{__file__}:{asking.__code__.co_firstlineno + line}"]
    assert [text.partition(" (")[2].partition(": ")[0] for text in found] == places


def test_a_class_without_a_file() -> None:
    names: dict[str, Any] = {"nn": nn, "__name__": "unknown"}
    exec("class Model(nn.Module):\n    def forward(self, x): return x + isinstance(x.shape[0], int)", names)
    assert list(size_questions(names["Model"]())) == []


@pytest.mark.parametrize(("shapes", "count"), [(None, 0), (({0: "n"},), 1)])
def test_the_finding_of_an_export(shapes: Any, count: int) -> None:
    program = fx_onnx.export(module(asks_isinstance), (torch.ones(5, 4),), dynamic_shapes=shapes, verbose=False)
    assert [each.id for each in program.findings] == ["FX1202"] * count
