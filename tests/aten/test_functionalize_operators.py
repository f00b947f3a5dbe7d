"""Functionalization of operators that write to intermediate values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.aten.functional_check import check
from tests.modules import FunctionModule

aten = torch.ops.aten


def relu_(x):
    y = x + 1
    y.relu_()
    return y * 2


def relu_result_is_another_name(x):
    y = x + 1
    z = y.relu_()
    z.add_(1)
    return y, z


def chain(x):
    y = x * 1
    return y.add_(1).mul_(2).sub_(3).clamp_(min=-1)


def chain_read_between(x):
    y = x * 1
    a = y + 0
    y.add_(1)
    b = y + 0
    y.mul_(2)
    return a, b, y


def augmented_assignments(x):
    mask, bits = x > 0, x.to(torch.int32)
    mask &= x < 1
    mask |= x > 2
    mask ^= x[0] > 0
    bits <<= 2
    bits >>= 1
    bits |= 1
    return mask, bits


def dropout_in_place(x):
    y = x.clone()
    nn.functional.dropout(y, training=False, inplace=True)
    return y + 1


def index_put(x):
    y = x.clone()
    y[torch.tensor([0, 2])] = 5
    y[torch.tensor([1, 1]), torch.tensor([0, 3])] += 2
    return y


def index_put_on_view(x):
    y = x.clone()
    y[1:][torch.tensor([0, 1])] = 5
    y.t()[torch.tensor([0])] += 1
    return y


def masked_fill(x):
    y = x.clone()
    y.masked_fill_(y > 0, -1.0)
    y[:, :2].masked_fill_(x[:, :2] < 0, 3.0)
    return y


def masked_scatter(x):
    y = x.clone()
    y.masked_scatter_(x[0] > 0, x.abs())
    return y.mul_(x[:1] > 0)


def bool_mask_assign(x):
    y = x.clone()
    y[y > 0] = 0
    return y


def scatter(x):
    y = x.clone()
    y.scatter_(1, torch.zeros(4, 1, dtype=torch.int64), 5.0)
    y.scatter_add_(1, torch.ones(4, 2, dtype=torch.int64), x)
    y.index_add_(0, torch.tensor([0, 1]), x[:2])
    y.index_fill_(0, torch.tensor([2]), 4.0)
    y.index_copy_(0, torch.tensor([3]), x[:1])
    return y


def written_tensor_keeps_its_dtype(x):
    y = torch.zeros_like(x, dtype=torch.int64)
    y.add_(torch.ones_like(y))
    y.copy_(x)
    y[0].copy_(x[1])
    z = torch.zeros_like(x)
    z.add_(y)
    half = x.half()
    half.add_(x.float())
    return y, z, half


def comparison_in_place(x):
    y = x.clone()
    y.gt_(0)
    return y


def copy_broadcasts(x):
    y = x.clone()
    y.copy_(x[0])
    y[:, 0].copy_(torch.tensor(2.0))
    return y


def fill_and_zero(x):
    y = torch.empty_like(x)
    y.fill_(2)
    z = torch.empty_like(x).zero_()
    return y, z


def out_argument(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    z = torch.empty_like(x)
    torch.mul(x, y, out=z)
    return y, z


def out_is_a_slice(x):
    y = x.clone()
    torch.add(x[1:], 1, out=y[1:])
    return y


def dropout_in_eval(x):
    y = x.clone()
    z = nn.functional.dropout(y, training=False)
    z.add_(1)
    return y, z


def inplace_activations(x):
    y = x.clone()
    nn.functional.relu(y, inplace=True)
    nn.functional.silu(y, inplace=True)
    nn.functional.leaky_relu(y, inplace=True)
    nn.functional.hardtanh(y, inplace=True)
    nn.functional.elu(y, inplace=True)
    nn.functional.hardswish(y, inplace=True)
    return y


def many_unary(x):
    y = x.abs() + 0.1
    y.sqrt_().exp_().log_().sigmoid_().tanh_().neg_().abs_().reciprocal_().floor_().clamp_min_(0.5)
    return y


def addcmul_lerp(x):
    y = x.clone()
    y.addcmul_(x, x, value=0.5).addcdiv_(x, x.abs() + 1).lerp_(x, 0.25)
    y.addmm_(x, x)
    y.div_(2, rounding_mode="floor")
    y.pow_(2)
    return y


def swap_by_temporaries(x):
    y = x.clone()
    first = y[:, 0].clone()
    y[:, 0] = y[:, 1]
    y[:, 1] = first
    return y


def loop(x):
    y = torch.zeros_like(x)
    for i in range(4):
        y[i] = x[i] + (y[i - 1] if i else 0)
    return y


def foreach(x):
    a, b = x.clone(), x.clone()
    torch._foreach_add_([a, b], 1.0)
    return a, b


def with_no_grad(x):
    y = x.clone()
    with torch.no_grad():
        y.add_(1)
        y[0] = 2
    return y


def sort_into(x):
    values, indices = torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)
    torch.sort(x, out=(values, indices))
    return values + 1, indices


def region_counters(x):
    """The attention mask of Swin: each region gets one number."""
    mask, count = torch.zeros(1, 4, 4, 1), 0
    for rows in (slice(0, -2), slice(-2, -1), slice(-1, None)):
        for columns in (slice(0, -2), slice(-2, -1), slice(-1, None)):
            mask[:, rows, columns, :] = count
            count += 1
    return mask.view(1, 2, 2, 2, 2, 1).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4) + x.sum()


def one_of_several_results(x: Tensor) -> tuple[Tensor, ...]:
    values, indices = x.topk(2)
    values /= values.sum(-1, keepdim=True)
    row = values[0]
    row.add_(1)
    return values, indices, row


FUNCTIONS = [
    one_of_several_results, relu_, relu_result_is_another_name, chain, chain_read_between, augmented_assignments,
    dropout_in_place, index_put, index_put_on_view, masked_fill, bool_mask_assign, scatter,
    written_tensor_keeps_its_dtype, comparison_in_place, copy_broadcasts, fill_and_zero, out_argument, out_is_a_slice,
    dropout_in_eval, inplace_activations, many_unary, addcmul_lerp, swap_by_temporaries, loop, foreach, with_no_grad,
    sort_into, region_counters,
]  # fmt: skip


DYNAMIC = [
    relu_, masked_fill, masked_scatter, copy_broadcasts,
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
