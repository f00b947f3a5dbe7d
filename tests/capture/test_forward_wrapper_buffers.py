"""Assignments to buffers of submodules keep their effect: the program returns the new values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.capture.forward_wrapper import write_in_place

pytestmark = pytest.mark.usefixtures("own_tracing")


class Inner(nn.Module):
    def __init__(self, step: Callable[[Inner, Tensor], Tensor]) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2))
        self.register_buffer("b", torch.ones(2))
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x)


class Outer(nn.Module):
    def __init__(self, step: Callable[[Inner, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner = Inner(step)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.inner(x)


def accumulate(inner: Inner, x: Tensor) -> Tensor:
    inner.a = inner.a + x
    return inner.a * 2


def swap(inner: Inner, x: Tensor) -> Tensor:
    inner.a, inner.b = inner.b, inner.a
    return x + inner.a


def return_the_old_value(inner: Inner, x: Tensor) -> Tensor:
    old = inner.a
    inner.a = inner.a + x
    return old


def return_a_view_of_the_old_value(inner: Inner, x: Tensor) -> Tensor:
    old = inner.a.view(1, 2)
    inner.a = inner.a + x
    return old


def shift(inner: Inner, x: Tensor) -> Tensor:
    inner.a = torch.cat([inner.a[1:], x[:1]])
    return inner.a


def write_and_assign(inner: Inner, x: Tensor) -> Tensor:
    inner.b.add_(x)
    inner.a = inner.b
    return inner.a


STEPS = [accumulate, swap, return_the_old_value, return_a_view_of_the_old_value, shift, write_and_assign]


@pytest.mark.parametrize("step", STEPS)
def test_the_state_goes_on(step: Callable[[Inner, Tensor], Tensor]) -> None:
    module = Outer(step).eval()
    program = fx_onnx.export(module, (torch.ones(2),))
    assert module.inner.a.tolist() == [0, 0], "the module is unchanged"
    program.state = {}
    for call in range(3):
        x = torch.tensor([1.0 + call, 2.0])
        torch.testing.assert_close(program(x)[0], module(x))


def grow(inner: Inner, x: Tensor) -> Tensor:
    inner.a = torch.cat([inner.a, x])
    return x


def remove(inner: Inner, x: Tensor) -> Tensor:
    inner.a = None  # type: ignore[assignment]
    return x


def delete(inner: Inner, x: Tensor) -> Tensor:
    del inner.a
    return x


@pytest.mark.parametrize("path", ["", "inner."])
@pytest.mark.parametrize(
    ("step", "found"), [(grow, r"torch\.float32 \[4\]"), (remove, "a NoneType"), (delete, "a NoneType")]
)
def test_a_value_of_another_shape_is_lost_with_a_warning(
    step: Callable[[Inner, Tensor], Tensor], found: str, path: str
) -> None:
    module = (nn.Sequential(OrderedDict(inner=Inner(step))) if path else Inner(step)).eval()
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=rf"assigns {found} to the buffer '{path}a'"):
        program = fx_onnx.export(module, (torch.ones(2),))
    assert [value.shape.numpy() for value in program.model.graph.outputs] == [(2,)]
    assert program(torch.ones(2))[0].tolist() == [1, 1]
    assert module.get_buffer(f"{path}a").tolist() == [0, 0]


@pytest.mark.parametrize("path", ["", "inner."])
def test_an_assignment_to_one_of_two_names_is_refused(path: str) -> None:
    """Afterwards the names are two tensors, but a program has one buffer for both."""
    inner = Inner(accumulate)
    inner.b = inner.a
    module = Outer(accumulate) if path else inner
    if isinstance(module, Outer):
        module.inner = inner
    with pytest.raises(fx_onnx.OnnxExporterError, match=rf"buffer '{path}a', which is also registered as '{path}b'"):
        fx_onnx.export(module, (torch.zeros(2),))


@pytest.mark.parametrize("path", ["", "inner."])
def test_a_result_that_is_the_old_value(path: str) -> None:
    def step(inner: Inner, x: Tensor) -> Tensor:
        old = inner.a
        inner.a = inner.a + x
        return old

    class Returns(Outer):
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    module = (Returns(step) if path else Inner(step)).eval()
    program = fx_onnx.export(module, (torch.ones(2),))
    program.state = {}
    results = [program(torch.full((2,), 3.0))[0].tolist() for _ in range(3)]
    assert results == [[0, 0], [3, 3], [6, 6]]


def test_results_and_new_values_that_are_old_values() -> None:
    x, y, z = torch.zeros(2), torch.ones(2), torch.full((2,), 2.0)
    results = write_in_place([(x, y), (y, x)], {"old": [x, y[:1]], "other": z})
    assert [x.tolist(), y.tolist()] == [[1, 1], [0, 0]]
    assert [each.tolist() for each in results["old"]] == [[0, 0], [1]]
    assert results["other"] is z
