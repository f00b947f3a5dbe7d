"""Sizes that torch would specialize stay dynamic, with correct results at other sizes; all patches are removed."""

import builtins
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fx_onnx
from fx_onnx.capture.patches.dynamic_sizes import replace_kernels
from fx_onnx.torch_internals.torch_private import FakeTensorMode, pytree
from tests.capture.sample_modules import Function
from tests.compare import assert_close

aten, key = torch.ops.aten, torch._C.DispatchKey


def grid(x: Tensor) -> Tensor:
    """Computes the coordinates of pixels, as detectors do."""
    rows, columns = torch.linspace(0, 1, x.shape[1]), torch.linspace(1.5, -0.5, x.shape[2], dtype=torch.float64)
    return rows[:, None] * columns


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "cdist": lambda x: torch.cdist(x, x[:, :3] + 1),
    "take_along_dim": lambda x: torch.take_along_dim(x, x.argsort(-1), -1),
    "take_along_dim_broadcast": lambda x: x.take_along_dim(x.argmax(-1, keepdim=True), -1),
    "take_along_dim_flat": lambda x: torch.take_along_dim(x, x.flatten().argsort()),
    "max_pool1d": lambda x: F.max_pool1d(x, 3),
    "max_pool1d_options": lambda x: F.max_pool1d(x, 3, 2, padding=1, dilation=2),
    "max_pool1d_ceil": lambda x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True),
    "max_pool1d_ceil_beyond": lambda x: F.max_pool1d(x, 2, 5, 1, ceil_mode=True),
    "tensor_split": lambda x: torch.tensor_split(x, 3, dim=-1),
    "tensor_split_sums": lambda x: [piece.sum(-1) for piece in x.tensor_split(5, -1)],
    "shape_as_tensor": lambda x: (torch._shape_as_tensor(x), x * aten._shape_as_tensor(x)[1]),
    "fill_diagonal": lambda x: x[0].clone().fill_diagonal_(2.0),
    "len": lambda x: x.new_zeros(len(x), x.shape[1]) + x.sum(2),
    "batch_norm": lambda x: F.batch_norm(x[x[:, 0, 0] > 0.5], torch.ones(x.shape[1]), torch.ones(x.shape[1])),
    "linspace": grid,
    "as_tensor": lambda x: x / torch.as_tensor(x.shape[2]),
    "as_tensor_list": lambda x: torch.as_tensor([x.shape[1], 3], dtype=torch.float32),
    "new_tensor": lambda x: x * x.new_tensor([x.shape[1], x.shape[2]]).sum(),
    "sym_ite": lambda x: x.new_zeros(torch.sym_ite(x.shape[1] > 4, x.shape[1], 2)),
    "divmod": lambda x: x.sum() * divmod(x.shape[1], 3)[0] + divmod(x.shape[1], 3)[1],
    "exp": lambda x: x * math.exp(-x.shape[1] / 10),
    "exp2": lambda x: x * math.exp2(x.shape[1] / 4),
    "pow": lambda x: x * math.pow(0.9, x.shape[1]) * math.pow(x.shape[2], -0.3),
    "hypot": lambda x: x / math.hypot(x.shape[1], x.shape[2]),
    "fabs": lambda x: x * math.fabs(0.5 - x.shape[1]),
    "tensor_log": lambda x: x * torch.full((), x.shape[1]).log(),
    "xor": lambda x: x.sum() * (x.shape[1] ^ 3) + (-5 ^ x.shape[2]) + (x.shape[1] ^ x.shape[2]),
    "invert": lambda x: x * ~x.shape[1],
    "numpy_sqrt": lambda x: x / np.sqrt(x.shape[2]) * np.sqrt(x.shape[1] / 2),
    "numpy_exp": lambda x: x * np.exp(-x.shape[2]),
    "sqrt": lambda x: x / math.sqrt(x.shape[2]),
    "affine_grid": lambda x: F.grid_sample(
        x[:, None], F.affine_grid(x[:, :2, :3], [x.shape[0], 1, x.shape[1], x.shape[2]], align_corners=False),
        align_corners=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_stays_dynamic(name: str) -> None:
    """No dim becomes static, and the results are correct at several sizes."""
    module = Function(FUNCTIONS[name]).eval()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=fx_onnx.OnnxExporterWarning)
        program = fx_onnx.export(
            module, (torch.randn(2, 4, 11),), dynamic_shapes=({0: "batch", 1: "rows", 2: "columns"},), verbose=False
        )
    for shape in ((2, 4, 11), (3, 5, 12), (2, 3, 13), (4, 6, 7)):
        x = torch.randn(shape)
        assert_close(program(x), module(x))


def test_distances_of_more_rows_than_torch_computes_by_differences() -> None:
    module = Function(lambda x: torch.cdist(x, x + 1)).eval()
    for rows in (5, 30):
        program = fx_onnx.export(module, (torch.randn(rows, 3),), dynamic_shapes=({0: "rows"},))
        assert [program.findings, str(program.dims)] == [[], "rows: any"]
        for x in (torch.randn(26, 3), torch.randn(60, 3), torch.randn(2, 3)):
            assert_close(program(x)[0], module(x))


def attend_within(x: Tensor, lengths: Tensor) -> Tensor:
    """Computes attention within each of several sequences, as in vision models with images of different sizes."""
    parts = x.split(lengths.tolist())
    return torch.cat([F.scaled_dot_product_attention(part[None], part[None], part[None])[0] for part in parts])


class Pair(nn.Module):
    """Calls ``attend_within``."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return attend_within(x, lengths)


def test_attention_of_data_dependent_length() -> None:
    """torch's fused kernels would compare the length with 0 and 1."""
    inputs = (torch.randn(6, 8), torch.tensor([2, 4]))
    program = fx_onnx.export(Pair().eval(), inputs, dynamic_shapes=({0: "rows"}, None), verbose=False)
    for rows, lengths in ((6, [2, 4]), (6, [5, 1]), (9, [3, 6])):
        x = torch.randn(rows, 8)
        assert_close(program(x, torch.tensor(lengths)), attend_within(x, torch.tensor(lengths)))


NOISE: dict[str, Callable[[Tensor], Tensor]] = {
    "randn": lambda x: torch.randn(*x.shape, generator=None, dtype=torch.float64, device=x.device),
    "rand": lambda x: torch.rand(size=x.shape, generator=None),
    "randint": lambda x: torch.randint(0, x.shape[0], x.shape, generator=None),
    "randint of one limit": lambda x: torch.randint(5, x.shape, generator=None, dtype=torch.int32),
    "randperm": lambda x: torch.randperm(x.shape[0], generator=None).expand(3, -1).T,
    "normal": lambda x: torch.normal(0.0, 1.0, x.shape, generator=None),
    "rand_like": lambda x: torch.rand_like(x, generator=None),
    "randn_like": lambda x: torch.randn_like(x, generator=None, dtype=torch.float16),
    "randint_like": lambda x: torch.randint_like(x, 5, generator=None),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.5, generator=None),
    "uniform_": lambda x: x.clone().uniform_(-1, 1, generator=None),
    "an operator": lambda x: aten.randn([1, 3], generator=None) + x,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", NOISE)
def test_no_generator_is_the_default_one(name: str, dynamic: bool) -> None:
    module = Function(NOISE[name]).eval()
    program = fx_onnx.export(module, (torch.ones(4, 3),), dynamic_shapes=({0: "n"},) if dynamic else None)
    for x in [torch.ones(4, 3)] + [torch.ones(7, 3)] * dynamic:
        (got,), want = program(x), module(x)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert got.unique().numel() > 1


def test_a_generator_is_refused() -> None:
    module = Function(lambda x: x + torch.randn(3, generator=torch.Generator()))
    with pytest.raises(fx_onnx.OnnxExporterError, match=r"randn\.generator|torch\._C\.Generator"):
        fx_onnx.export(module, (torch.ones(3),))


@pytest.mark.parametrize("dynamic", [False, True])
def test_len_is_replaced_from_the_first_symbolic_size_on(dynamic: bool) -> None:
    """A replacement makes each call of ``len`` slower, and a capture with static shapes has no other use of it."""
    own, seen = len, []

    def positions(x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            seen.append(builtins.len is own)
        found = x.nonzero()
        if torch.compiler.is_exporting():
            seen.append(builtins.len is own)
        return found * len(found) + x.shape[0]

    x = torch.tensor([0.0, 1, 2])
    program = fx_onnx.export(Function(positions), (x,), dynamic_shapes=({0: "n"},) if dynamic else None, progress=False)
    assert seen[-1] is False
    assert dynamic or seen[0]
    assert builtins.len is own
    for given in (x.flip(0), x + 1):
        assert_close(program(given), positions(given))


def test_kernels_are_restored_after_an_error() -> None:
    kernel = aten.lstm.input.py_kernels[key.CompositeImplicitAutograd]
    with pytest.raises(ZeroDivisionError), replace_kernels():
        assert key.CompositeImplicitAutograd in aten.max_pool1d.default.py_kernels
        raise ZeroDivisionError
    assert aten.lstm.input.py_kernels[key.CompositeImplicitAutograd] is kernel
    assert key.CompositeImplicitAutograd not in aten.max_pool1d.default.py_kernels


X, SCALES = torch.randn(2, 3, 12), (torch.ones(3), torch.zeros(3, dtype=torch.int32))
KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "lstm": (torch.nn.LSTM(12, 4, 2, bidirectional=True), (X,)),
    "gru": (torch.nn.GRU(12, 4, batch_first=True), (X, torch.zeros(1, 2, 4))),
    "rnn of one text": (torch.nn.RNN(12, 4, nonlinearity="relu"), (X[0],)),
    "unfold": (lambda x: torch.autograd.grad(x.unfold(2, 4, 3).sum(), x), (X.clone().requires_grad_(),)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1, 2), (X,)),
    "max_pool1d, ceil": (lambda x: F.max_pool1d(x, 5, 4, 2, ceil_mode=True), (X,)),
    "batch_norm": (torch.nn.BatchNorm1d(3).double().eval(), (X.double(),)),
    "batch_norm, training": (torch.nn.BatchNorm1d(3, affine=False), (X,)),
    "fill_diagonal_": (lambda x: x[0].clone().fill_diagonal_(2.0), (X,)),
    "take_along_dim": (lambda x: x.take_along_dim(torch.zeros(2, 1, 5, dtype=torch.int64), 2), (X,)),
    "take_along_dim, flat": (lambda x: x.take_along_dim(torch.zeros(2, 4, dtype=torch.int64)), (X,)),
    "cdist": (lambda x: torch.cdist(x.repeat(1, 10, 1), x), (X,)),
    "tensor_split": (lambda x: torch.tensor_split(x, 5, 2), (X.half(),)),
    "fake quantization": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 2, 0, 255), (X,)),
    "fake quantization of channels": (
        lambda x: torch.fake_quantize_per_channel_affine(x, *SCALES, 1, -8, 7), (X.double(),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_infers_what_torch_computes(name: str) -> None:
    function, args = KERNELS[name]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, replace_kernels():
        fakes = [mode.from_tensor(arg) for arg in args]
        inferred = pytree.tree_leaves(function(*fakes))
    computed = pytree.tree_leaves(function(*args))
    assert [(x.shape, x.dtype, x.stride()) for x in inferred] == [(x.shape, x.dtype, x.stride()) for x in computed]
