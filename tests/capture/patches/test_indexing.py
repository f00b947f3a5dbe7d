"""Reads and writes at 0-d masks and positions and at masks of bytes, static and dynamic, at other values."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.capture.sample_modules import Function
from tests.compare import assert_close


def write_where(x: Tensor) -> tuple[Tensor, Tensor]:
    """Writes a number and a row where a 0-d mask is true, and to a 0-d tensor."""
    y, total = x * 2, x.sum()
    positive = total > 0
    y[positive] = 1.5
    y.T[~positive] = x[0, 0]
    total[positive] = 1.0
    return y, total


def read_where(x: Tensor) -> tuple[Tensor, Tensor]:
    """Reads where a 0-d mask is true: the result has 1 or 0 entries on a new first axis."""
    positive = x.sum() > 0
    return x[positive] + 1, x.sum()[positive]


@pytest.mark.parametrize("function", [write_where, read_where])
def test_a_0d_mask_as_an_index(function: Callable[[Tensor], Any]) -> None:
    """Python reads the value of a 0-d mask, which torch.export cannot."""
    program = fx_onnx.export(Function(function).eval(), (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},))
    for x in (torch.rand(3, 4), -torch.rand(3, 4), torch.rand(5, 4)):
        assert_close(program(x), function(x))


T, MASK = torch.tensor([0, 2]), torch.tensor([[True, False, True]] * 3)
WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "a row": lambda y, i, v: y.__setitem__(i, v[0]),
    "a number": lambda y, i, v: y.__setitem__((..., i), 0.5),
    "a column": lambda y, i, v: y.__setitem__((slice(None), i), v),
    "a part of a row": lambda y, i, v: y.__setitem__((i, slice(None, 2)), v[:2]),
    "after a number": lambda y, i, v: y.__setitem__((0, i), v[0]),
    "with new axes": lambda y, i, v: y.__setitem__((None, i, None, 1), v[0]),
    "before an ellipsis": lambda y, i, v: y.__setitem__((i, ..., 0), v[0]),
    "after an ellipsis": lambda y, i, v: y.__setitem__((..., i, slice(1, None)), v[:, 1:]),
    "two positions": lambda y, i, v: y.__setitem__((i, -1 - i), 3.0),
    "after a vector": lambda y, i, v: y.__setitem__((T, i), v[:2]),
    "between two vectors": lambda y, i, v: y.__setitem__((T, i, T), v[0, 0]),
    "before a mask": lambda y, i, v: y.__setitem__((i, MASK), v[0, 0]),
    "after a mask": lambda y, i, v: y.__setitem__((v[:, 0] > 0, i), v[0]),
    "int32": lambda y, i, v: y.__setitem__((slice(None), i.int()), v),
    "added": lambda y, i, v: y.__setitem__(i, y[i] + v[0]),
    "another dtype": lambda y, i, v: y.__setitem__(i, v[:3].long()),
    "a value with axes of size 1": lambda y, i, v: y.__setitem__((i, 0), v[None, :1]),
    "a transposed tensor": lambda y, i, v: y.transpose(0, 1).__setitem__(i, v),
    "through a read": lambda y, i, v: y[:, i].copy_(v),
}


class Writes(nn.Module):
    """Writes to a clone."""

    def __init__(self, write: Callable[[Tensor, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.write = write

    def forward(self, x: Tensor, i: Tensor, v: Tensor) -> Tensor:
        y = x.clone()
        self.write(y, i, v)
        return y


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_at_a_0d_position(name: str, dynamic: bool) -> None:
    """The position may count from the end."""
    module, sizes = Writes(WRITES[name]), ({0: "n"}, None, {0: "n"}) if dynamic else None
    program = fx_onnx.export(module, (torch.randn(3, 3, 3), torch.tensor(1), torch.randn(3, 3)), dynamic_shapes=sizes)
    for place, rows in ((1, 3), (2, 5), (0, 4), (-1, 3), (-3, 3)):
        n = rows if dynamic else 3
        x, i, v = torch.randn(n, 3, 3), torch.tensor(place), torch.randn(n, 3)
        assert_close(program(x, i, v)[0], module(x, i, v))
    with pytest.raises(Exception, match=r"(?i)out.of.bounds|invalid ind|out of data bounds"):
        program(torch.randn(3, 3, 3), torch.tensor(4), torch.randn(3, 3))


READS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a row": lambda x, i: x[i],
    "a column": lambda x, i: x[..., i],
    "after a vector": lambda x, i: x[T, i],
    "before a vector": lambda x, i: x[i, T],
    "between two vectors": lambda x, i: x[T, i, T],
    "after a mask": lambda x, i: x[x[:, 0, 0] > 0, i],
    "two positions": lambda x, i: x[i, 1:, i.int()],
    "of one tensor by another": lambda x, i: x[x[:, i, 0].argmax()],
    "by a vectorized function": lambda x, i: torch.vmap(lambda j: x[0][j])(T + i - i),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", READS)
def test_a_read_at_a_0d_position(name: str, dynamic: bool) -> None:
    module, sizes = Function(READS[name]).eval(), ({0: "n"}, None) if dynamic else None
    program = fx_onnx.export(module, (torch.randn(3, 3, 3), torch.tensor(1)), dynamic_shapes=sizes, verbose=False)
    for place, rows in ((1, 3), (2, 5), (-1, 3), (-3, 4)):
        x, i = torch.randn(rows if dynamic else 3, 3, 3), torch.tensor(place)
        assert_close(program(x, i)[0], module(x, i))


BYTES: dict[str, Callable[[Tensor], Any]] = {
    "rows": lambda x: x[(x[:, 0] > 0).byte()],
    "columns": lambda x: x[:, (x[0] > 0).byte()],
    "elements": lambda x: x[(x > 0).byte() * 3],
    "a constant": lambda x: x[:, torch.tensor([2, 0, 1], dtype=torch.uint8)],
    "after an ellipsis": lambda x: x[..., (x[0] > 0).byte()],
    "in a list": lambda x: x[[(x[:, 0] > 0).byte()]],
    "after a new axis": lambda x: x[None, (x[:, 0] > 0).byte()],
    "0-d": lambda x: x[(x.sum() > 0).byte()],
    "written": lambda x: Writes(lambda y, i, v: y.__setitem__(i, v[v[:, 0] > 0] + 1))(x, (x[:, 0] > 0).byte(), x),
    "written, 0-d": lambda x: Writes(lambda y, i, v: y.__setitem__(i, v + 1))(x, (x.sum() > 0).byte(), x),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", BYTES)
def test_a_mask_of_bytes(name: str, dynamic: bool) -> None:
    module = Function(BYTES[name]).eval()
    x = torch.tensor([[1.0, -2, 3], [-4, 5, 6]])
    program = fx_onnx.export(module, (x,), dynamic_shapes=({0: "n"},) if dynamic else None)
    for given in [x, -x] + [torch.randn(5, 3), -torch.ones(1, 3)] * dynamic:
        got, want = program(given)[0], module(given)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert_close(got, want)
