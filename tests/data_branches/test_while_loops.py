"""The example that a refused loop on data gets: the loop itself with torch.while_loop."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.data_branches.while_loops import rewritten_loop
from tests.compare import assert_close


class Doubles(nn.Module):
    """Doubles until the sum is large, and counts."""

    def forward(self, x: Tensor) -> Any:
        """Returns both."""
        count = torch.zeros((), dtype=torch.int64)
        while x.sum() < 100:
            x = x * 2
            count += 1
        return x, count


def test_the_example_is_the_loop() -> None:
    """Its lines run, and can be exported."""
    with pytest.raises(fx_onnx.CaptureError, match=r"rounds the loop \(.*: while x\.sum\(\) < 100:\) ends;") as error:
        fx_onnx.export(Doubles().eval(), (torch.rand(3),))
    lines = re.sub("(?m)^    ", "", error.value.message.partition("torch.while_loop:\n")[2])
    namespace: dict[str, Any] = {"torch": torch}
    forward = f"def forward(self, x):\n count = torch.zeros((), dtype=torch.int64)\n {lines}\n return x, count"
    exec(forward.replace("\n", "\n ").replace("\n  ", "\n "), namespace)
    rewritten = type("Rewritten", (nn.Module,), {"forward": namespace["forward"]})()
    program = fx_onnx.export(rewritten.eval(), (torch.rand(3),))
    for x in (torch.rand(3), torch.rand(3) * 60, torch.full((3,), 40.0)):
        assert_close(program(x), Doubles()(x))


def with_break(x: Any) -> Any:
    while x.sum() < 100:
        if x[0] > 1:
            break
        x = x * 2
    return x


def with_an_attribute(m: Any, x: Any) -> Any:
    while x.sum() < 100:
        m.x = x = x * 2
    return x


def with_a_counter(x: Any) -> Any:
    n = 0
    while n < 9 and x.sum() < 100:
        x, n = x * 2, n + 1
    return x


@pytest.mark.parametrize(("function", "offset"), [(with_break, 1), (with_an_attribute, 1), (with_a_counter, 2)])
def test_other_loops_have_no_example(function: Any, offset: int) -> None:
    code = function.__code__
    assert rewritten_loop(code, code.co_firstlineno + offset) == ""


def test_a_larger_number_of_paths_allows_more_rounds() -> None:
    class Counts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return with_a_counter(x)  # type: ignore[no-any-return]

    with pytest.raises(fx_onnx.CaptureError, match=r"after how many rounds the loop .* with torch.while_loop\. \["):
        fx_onnx.export(Counts().eval(), (torch.rand(3),))
    program = fx_onnx.export(Counts().eval(), (torch.rand(3),), max_data_paths=40)
    for x in (torch.rand(3), torch.rand(3) / 100, torch.full((3,), 40.0)):
        assert_close(program(x), Counts()(x))


@pytest.mark.parametrize("count", [0, True, "many"])
def test_the_number_of_paths_is_a_number(count: Any) -> None:
    with pytest.raises(fx_onnx.ArgumentError, match="max_data_paths must be an integer above 0, not"):
        fx_onnx.export(nn.ReLU(), (torch.rand(3),), max_data_paths=count)
