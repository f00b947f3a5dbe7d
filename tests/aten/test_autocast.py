"""Lowering of autocast regions: results have the dtypes and values of eager execution, at two sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import fx_onnx
from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.autocast import lower_autocast
from fx_onnx.messages.errors import TranslationError
from tests.compare import assert_close

BF16, F16 = torch.bfloat16, torch.float16


class Net(nn.Module):
    """A module whose forward is a function of the module and its input."""

    def __init__(self, function: Callable[[Net, Tensor], object]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.linear = nn.Linear(4, 4)
        self.conv = nn.Conv1d(4, 3, 1)
        self.cell = nn.LSTMCell(4, 5)
        self.gru = nn.GRU(4, 5)
        self.register_buffer("total", torch.zeros(4))
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> object:
        return self.function(self, x)


def bfloat16(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        y = net.linear(x)
        return y, y.float().softmax(-1), y @ y.mT, x + 1


def float16(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=F16):
        y = net.linear(x)
    return y, y + x


def switched_off_within(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        y = net.linear(x)
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ y.float().mT
        return y.softmax(-1), z, net.linear(x), F.layer_norm(y, (4,))


def switched_on_within(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", enabled=False):
        y = net.linear(x)
        with torch.autocast("cpu", dtype=BF16):
            z = net.linear(y)
        return y, z, net.linear(y)


def another_dtype_within(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        y = net.linear(x)
        with torch.autocast("cpu", dtype=F16):
            z = net.linear(x)
        return y, z, net.linear(x)


def without_gradients_within(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        with torch.no_grad():
            y = net.linear(x)
        return y, torch.utils.checkpoint.checkpoint(net.linear, x, use_reentrant=False)


def promotes_to_the_widest_dtype(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        y = net.linear(x)
        return torch.cat([x, y]), torch.stack([y, y]), torch.stack([y, x]), torch.cat([x.double(), y.double()])


def to_float32(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        y = net.linear(x)
        return F.mse_loss(y, y + 1), F.avg_pool3d(y[None, None, None], 1)


def mixed(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        return net.linear(x.to(BF16)), F.scaled_dot_product_attention(x[None], x[None].to(BF16), x[None])


def an_input_in_the_dtype_of_autocast(net: Net, x: Tensor) -> object:
    row = x[0].to(BF16)
    with torch.autocast("cpu", dtype=BF16):
        return net.linear(row), row + x, row * x.sum(), torch.cat([row, x[1]])


def convolution(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        return net.conv(x.T[None])


def composed(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        return torch.einsum("ij,kj->ik", x, x), torch.inner(x, x), torch.tensordot(x, x, ([1], [1]))


def in_a_branch(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        return torch.cond(x.sum() > 0, lambda x: net.linear(x), lambda x: net.linear(x + 1), (x,))


def region_in_a_branch(net: Net, x: Tensor) -> object:
    def cast(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=BF16):
            return net.linear(x).float()

    return torch.cond(x.sum() > 0, cast, lambda x: net.linear(x), (x,))


def writes(net: Net, x: Tensor) -> object:
    y = x.clone()
    with torch.autocast("cpu", dtype=BF16):
        y[0] = net.linear(x)[0]
        net.total.add_(net.linear(x).sum(0))
        z = net.linear(y)
        y.mul_(2)
        return z, net.linear(y), y


def selects_by_mask(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        y = x[x > 0.5]
        return y, net.linear(x)[x[:, 0] > 0.5], x.nonzero()


def splits_at_indices(net: Net, x: Tensor) -> object:
    with torch.autocast("cpu", dtype=BF16):
        return *net.linear(x).tensor_split(torch.tensor([1, 2]), -1), *x.tensor_split(torch.tensor(2), -1)


@pytest.mark.parametrize(
    "function",
    [
        bfloat16, float16, switched_off_within, switched_on_within, another_dtype_within, without_gradients_within,
        promotes_to_the_widest_dtype, to_float32, mixed, an_input_in_the_dtype_of_autocast, convolution, composed,
        in_a_branch, region_in_a_branch, writes, selects_by_mask, splits_at_indices,
    ],
)  # fmt: skip
def test_regions(function: Callable[[Net, Tensor], object]) -> None:
    program = fx_onnx.export(Net(function), (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), verbose=False)
    for rows in (3, 6):
        x = torch.rand(rows, 4)
        want = Net(function)(x)
        assert_close(program(x)[: len(want) if isinstance(want, tuple) else 1], want, tolerance=2e-2)


def test_a_program_without_casts_is_returned_as_it_is() -> None:
    def off(net: Net, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return net.linear(x)

    program = AtenProgram.captured(torch.export.export(Net(off), (torch.randn(3, 4),)))
    assert lower_autocast(program) is program


def test_the_captured_graph_is_not_changed() -> None:
    program = torch.export.export(Net(switched_off_within), (torch.randn(3, 4),))
    before = str(program.graph_module.code)
    cast = lower_autocast(AtenProgram.captured(program)).graph.owning_module
    assert str(program.graph_module.code) == before
    assert any(node.target is torch.ops.aten.to.dtype for m in cast.modules() for node in m.graph.nodes)


def test_autocast_around_the_export() -> None:
    with torch.autocast("cpu", dtype=BF16):
        program = fx_onnx.export(Net(lambda net, x: net.linear(x) + 1), (torch.randn(3, 4),), verbose=False)
    assert not torch.is_autocast_enabled("cpu")
    x = torch.rand(3, 4)
    with torch.autocast("cpu", dtype=BF16):
        want = Net(lambda net, x: net.linear(x) + 1)(x)
    assert_close(program(x), want)
    assert want.dtype == BF16


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda net, x: net.gru(x)[0], "aten.gru.input"),
        (lambda net, x: net.cell(x)[0], "aten.lstm_cell.default"),
        (lambda net, x: net.gru(pack_padded_sequence(x[:, None], torch.tensor([2])))[0].data, "fx_onnx.gru.default"),
        (lambda net, x: torch.linalg.pinv(x), "aten.linalg_pinv.atol_rtol_tensor"),
    ],
    ids=["gru", "cell", "packed", "pinv"],
)
def test_an_operator_with_casts_inside_is_refused(function: Callable[[Net, Tensor], Tensor], operator: str) -> None:
    def recurrent(net: Net, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=BF16):
            return function(net, x)

    with pytest.raises(TranslationError, match=f"{operator} in an autocast region casts inside the operator"):
        fx_onnx.export(Net(recurrent), (torch.randn(3, 4),), verbose=False)
