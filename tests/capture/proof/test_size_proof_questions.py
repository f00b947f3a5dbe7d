"""A forward whose results depend on the type or the text of a dynamic size has a finding; others have none."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx

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
    return x * len(str(x.shape[0]))


def is_plain(x: Tensor, count: Any) -> bool:
    return isinstance(count, int) and x.ndim == 2


def asks_in_a_helper(self: Any, x: Tensor) -> Tensor:
    rows = x.shape[0]
    return x + 1 if is_plain(x, rows // 2) else x


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


def is_the_same(self: Any, x: Tensor) -> Tensor:
    return x * 2 if isinstance(x.shape[0], int) else x + x


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (asks_isinstance, 1),
        (asks_type, 2),
        (matches, 4),
        (has_a_key, 2),
        (compares_text, 1),
        (measures_text, 1),
        (asks_in_a_helper, 2),
        (gives_no_size, None),
        (raises, None),
        (asks_others, None),
        (is_the_same, None),
    ],
)
def test_questions(function: Callable[[Any, Tensor], Tensor], line: int | None) -> None:
    """The line counts from that of the function, and computes what the program does not."""
    program = fx_onnx.export(module(function), (torch.ones(5, 4),), dynamic_shapes=({0: "n"},), verbose=False)
    place = "" if line is None else f"({__file__}:{function.__code__.co_firstlineno + line}: "
    found = [str(each) for each in program.findings if each.id == "FX1202"]
    assert len(found) == (line is not None) and all(place in text for text in found)


def test_static_sizes_are_ints() -> None:
    program = fx_onnx.export(module(asks_isinstance), (torch.ones(5, 4),), verbose=False)
    assert not program.findings


def test_a_size_of_0_that_the_code_does_not_ask_for_is_no_condition() -> None:
    program = fx_onnx.export(
        module(lambda self, x: torch.histc(x, 4)), (torch.ones(5, 4),), dynamic_shapes=({0: "n"},), verbose=False
    )
    assert list(program.dims.conditions) == []


@pytest.mark.parametrize(
    ("forward", "listed"),
    [
        (lambda self, x: x + 1 if x.shape == (3, 7) else x, ["(m != 7) or (n != 3)"]),
        (lambda self, x: x + 1 if x.size(0) == 3 and x.size(1) == 7 else x, ["(m != 7) or (n != 3)"]),
        (lambda self, x: x * 2 if x.shape == (3, 7) else x + x, []),
        (lambda self, x: x + 1 if x.shape[0] == 3 else x, ["n != 3"]),
    ],
)
def test_sizes_that_are_compared_at_once(forward: Callable[[Any, Tensor], Tensor], listed: list[str]) -> None:
    """The second size is compared only where the first one is equal, which the example is not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fx_onnx.OnnxExporterWarning)
        program = fx_onnx.export(
            module(forward), (torch.ones(5, 4),), dynamic_shapes=({0: "n", 1: "m"},), verbose=False
        )
    assert list(map(str, program.dims.conditions)) == listed
    assert len(program.findings) == len(listed)
