"""Functionalization of writes through views of intermediate values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.aten.functional_check import check
from tests.modules import FunctionModule

aten = torch.ops.aten


def slice_copy(x):
    y = torch.zeros_like(x)
    y[:, 1:3].copy_(x[:, :2])
    return y


def slice_assign(x):
    y = x.clone()
    y[:, 1] = 7
    y[:, 2:] = x[:, :2]
    return y


def slice_of_slice(x):
    y = x.clone()
    y[1:][:, 1:].fill_(3)
    return y


def slice_add(x):
    y = x.clone()
    y[1:] += 1
    y[..., 0] *= 2
    return y


def view_then_write_base(x):
    y = x * 1
    v = y.view(-1)
    y.add_(1)
    return v * 2


def write_view_read_base(x):
    y = x * 1
    y.view(-1).mul_(2)
    return y


def write_view_read_other_view(x):
    y = x * 1
    a, b = y.view(-1), y.t()
    a.add_(1)
    b.mul_(3)
    return a, b, y


def view_taken_before_two_writes(x):
    y = x * 1
    v = y[1:]
    w = v[:, 1:]
    y.add_(1)
    w.zero_()
    v.add_(2)
    return y, v, w


def select_write(x):
    y = x.clone()
    y.select(1, 2).add_(5)
    y[0].mul_(2)
    y[-1, -1] = 9
    return y


def transpose_write(x):
    y = x.clone()
    y.transpose(0, 1)[1].fill_(1)
    y.t()[0].add_(1)
    return y


def permute_write(x):
    y = x.clone().unsqueeze(0)
    y.permute(2, 0, 1)[1].fill_(4)
    return y


def movedim_write(x):
    y = x.clone().unsqueeze(0)
    y.movedim(0, 2)[1].mul_(4)
    return y


def swapaxes_write(x):
    y = x.clone()
    y.swapaxes(0, 1)[0].mul_(4)
    y.mT[1].add_(1)
    return y


def diagonal_write(x):
    y = x.clone()
    y.diagonal().fill_(0)
    y.diagonal(1).add_(1)
    return y


def narrow_write(x):
    y = x.clone()
    y.narrow(1, 1, 2).zero_()
    return y


def narrow_negative(x):
    y = x.clone()
    y.narrow(1, -2, 2).zero_()
    return y


def slice_step(x):
    y = x.clone()
    y[:, ::2] = 0
    y[::2].add_(1)
    return y


def negative_slice(x):
    y = x.clone()
    y[:, -2:] = 0
    y[:-1].add_(1)
    return y


def unsqueeze_write(x):
    y = x.clone()
    y.unsqueeze(0)[0, 1].add_(1)
    y.unsqueeze(-1).squeeze(-1).mul_(2)
    return y


def flatten_write(x):
    y = x.clone()
    y.flatten()[2:5].zero_()
    y.reshape(-1)[0] = 1
    y.view(2, 2, -1)[0, 1] += 1
    return y


def unflatten_write(x):
    y = x.clone()
    y.unflatten(1, (2, 2))[:, 1].zero_()
    return y


def split_write(x):
    y = x.clone()
    a, b = y.split(2, dim=1)
    a.add_(1)
    b.mul_(2)
    return y, a


def split_sizes_write(x):
    y = x.clone()
    a, b = y.split([1, 3], dim=1)
    b.mul_(2)
    a.zero_()
    return y, b


def chunk_write(x):
    y = x.clone()
    a, b = y.chunk(2, dim=-1)
    b.mul_(2)
    a.copy_(b)
    return y


def unbind_write(x):
    y = x.clone()
    rows = y.unbind(1)
    rows[1].mul_(2)
    rows[-1].add_(rows[1])
    return y


def tensor_split_write(x):
    y = x.clone()
    y.tensor_split(2, dim=1)[1].mul_(2)
    return y


def write_then_split_read(x):
    y = x.clone()
    a, b = y.split(2, dim=1)
    y.add_(1)
    return a, b


def expand_read_after_write(x):
    y = x[:1].clone()
    e = y.expand(4, -1)
    y.add_(1)
    return e + x[:1]


def shape_changes_in_place(x):
    y = x.clone()
    y.unsqueeze_(0)
    y.squeeze_(0)
    y.t_()
    return y + 1


def transpose_in_place_then_write(x):
    y = x.clone()
    y.transpose_(0, 1)
    y[0].fill_(2)
    return y


def to_that_does_not_copy(x):
    y = x.clone()
    z = y.to(torch.float32)
    z.add_(1)
    w = y.to(torch.float64)
    w.add_(1)
    return y, w


def contiguous_that_does_not_copy(x):
    y = x.clone()
    y.contiguous().add_(1)
    y.t().contiguous().add_(1)
    return y


def reshape_that_copies(x):
    y = x.clone()
    y.t().reshape(-1).add_(1)
    return y


def detach_write(x):
    y = x.clone()
    y.detach().add_(1)
    return y


def view_as_real(x):
    z = torch.view_as_complex(x.clone().view(4, 2, 2))
    torch.view_as_real(z)[..., 0] = 1
    return torch.view_as_real(z * 1)


def as_strided(x):
    y = x.clone()
    y.as_strided((2, 2), (4, 1)).add_(1)
    return y


def list_of_views(x):
    y = x.clone()
    parts = torch.stack([y[0], y[1]])
    y.add_(1)
    return parts, torch.cat([y[:1], y[1:]])


def rotate_halves(x):
    y = x.clone()
    a, b = y[..., :2], y[..., 2:]
    y[..., :2], y[..., 2:] = a * 2 - b, b * 2 + a
    return y


def written_twice_through_one_view(x):
    y = x.clone()
    v = y[1]
    v.add_(1)
    y.mul_(2)
    v.add_(1)
    return y, v


def squeeze_write(x):
    y = x.clone().unsqueeze(1)
    y.squeeze(1)[0].add_(1)
    y.squeeze().mul_(2)
    return y


def zeros_then_fill_rows(x):
    mask = torch.full((4, 4), float("-inf"))
    mask.triu_(1)
    y = torch.ones(4, 4).tril_()
    return x + y, mask


def split_then_cat(x):
    y = x.clone()
    parts = list(y.split(1))
    parts[0].add_(1)
    y.mul_(2)
    return torch.cat(parts)


def gathered_rows_and_columns(x):
    y = x.clone()
    y[:, [0, 2]] = x[:, [1, 3]]
    y[1:3, [0]] *= 2
    y[None, :, 1] = 3
    y[0, 0] = x[1, 1]
    y[1] = x.sum()
    return y


def views_that_are_the_same(x):
    y = x.clone()
    y[:].add_(1)
    y[...].mul_(2)
    y.float().add_(1)
    y.type_as(x).mul_(2)
    y.expand(4, 4).add_(1)
    return y


def view_of_a_size_that_is_divided(x):
    y = x.clone()
    y.view(y.shape[0] * 4 // 2, 2)[1:].add_(1)
    return y


def narrow_dynamic(x):
    y = x.clone()
    half = x.shape[0] // 2
    y.narrow(0, half, half).zero_()
    y[half:].add_(1)
    return y


def narrow_from_the_end(x):
    y = x.clone()
    rows = x.shape[0]
    y.narrow(0, rows // 2 - rows, rows - rows // 2).add_(1)
    y.narrow(0, -2, rows // 2).mul_(2)
    return y


def views_of_two_tensors(x: Tensor) -> tuple[Tensor, ...]:
    """The storage of the first tensor is written more often than that of the second."""
    first, second = x.clone(), x[0].clone()
    left, right = torch.broadcast_tensors(first, second)
    first.add_(1)
    first.mul_(2)
    before = left * 1
    second.add_(1)
    return before, left * 2, right * 2


FUNCTIONS = [
    views_of_two_tensors,
    slice_copy, slice_assign, slice_of_slice, slice_add, view_then_write_base, write_view_read_base,
    write_view_read_other_view, view_taken_before_two_writes, select_write, transpose_write, permute_write,
    movedim_write, swapaxes_write, diagonal_write, narrow_write, narrow_negative, slice_step, negative_slice,
    unsqueeze_write, flatten_write, unflatten_write, split_write, split_sizes_write, chunk_write, unbind_write,
    tensor_split_write, write_then_split_read, expand_read_after_write, shape_changes_in_place,
    transpose_in_place_then_write, to_that_does_not_copy, contiguous_that_does_not_copy, reshape_that_copies,
    detach_write, view_as_real, as_strided, list_of_views, rotate_halves, written_twice_through_one_view,
    squeeze_write, zeros_then_fill_rows, split_then_cat, gathered_rows_and_columns, views_that_are_the_same,
]  # fmt: skip


DYNAMIC = [
    slice_copy, slice_assign, slice_add, view_then_write_base, write_view_read_base, write_view_read_other_view,
    view_taken_before_two_writes, select_write, transpose_write, narrow_write, narrow_dynamic, narrow_from_the_end,
    negative_slice,
    slice_step, unsqueeze_write, split_write, split_sizes_write, chunk_write, unbind_write, rotate_halves,
    detach_write, reshape_that_copies, contiguous_that_does_not_copy, written_twice_through_one_view,
    view_of_a_size_that_is_divided,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_static(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    program = check(FunctionModule(function), torch.randn(4, 4))
    assert program.mutations == ()


@pytest.mark.parametrize("function", DYNAMIC, ids=lambda function: function.__name__)
def test_dynamic(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    check(FunctionModule(function), torch.randn(4, 4), dynamic=True)
