"""Modules whose captures differ if a replacement of torch's internals is not exact."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import while_loop
from torch.export import Dim
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

X = torch.randn(3, 4)
A = Dim.AUTO
ROWS = ({0: A},)


class Function(nn.Module):
    """Calls a function."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Any) -> Any:
        """Takes the argument of the function after the module."""
        return self.function(self, x)


class Twice(nn.Module):
    """Calls one module twice, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.second = self.first

    def forward(self, x: Tensor) -> Tensor:
        """(n, 4) to (n, 4)."""
        return self.second(self.first(x)) + self.first[0](x)


class Weights(nn.Module):
    """Has tied weights, views of weights, buffers of several formats, and writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)
        self.other.weight = self.one.weight
        self.register_buffer("row", self.one.weight.detach()[1])
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last))
        self.register_buffer("last_3d", torch.rand(2, 3, 2, 2, 2).to(memory_format=torch.channels_last_3d))
        self.register_buffer("empty", torch.rand(0, 3), persistent=False)
        self.register_buffer("wide", torch.rand(2, 1).expand(2, 5))
        self.register_buffer("conjugate", torch.rand(2, dtype=torch.complex64).conj())
        self.constant = torch.arange(4.0)
        self.view = self.one.weight.detach()[:2]

    def forward(self, x: Tensor) -> Any:
        """(n, 4) to several results."""
        self.count.add_(1)
        self.row.mul_(2)
        y = self.other(self.one(x)) + self.row + self.constant + self.view.sum()
        x[:, 0] = 3
        return y, self.last + self.last.sum(), self.last_3d * 2, self.wide.T, self.conjugate * 1j, self.empty + 1


class Counting(TorchFunctionMode):
    """Counts the calls of functions."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Passes a call on."""
        self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def _counted(module: Any, x: Tensor) -> Any:
    with Counting() as mode:
        y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x * 2,))
        return y, dict(mode.counts)


def _branches(module: Any, x: Tensor) -> Any:
    """Calls functions of torch for trees in a branch, whose code dynamo reads."""

    def branch(x: Tensor) -> Tensor:
        leaves, _ = pytree.tree_flatten(pytree.tree_map(torch.sin, {"a": x, "b": [x + 1, (x * 2,)]}))
        return torch.stack(leaves).sum(0)

    return torch.cond(x.sum() > 0, branch, lambda x: x.cos(), (x * 2,))


def _loop(module: Any, x: Tensor) -> Any:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y.sin() @ module.weight), (torch.tensor(0), x))


def _scan(module: Any, x: Tensor) -> Any:
    scan = torch._higher_order_ops.scan
    return scan(lambda state, row: (state + row, (state * row).sin()), torch.zeros(4), x)


def _modes(module: Any, x: Tensor) -> Any:
    with torch.no_grad():
        y = module.linear(x)
    with torch.autocast("cpu", torch.bfloat16):
        z = module.linear(x + y)
    with torch.set_grad_enabled(True), contextlib.suppress(ZeroDivisionError):
        return z.float() / 2 + y
    return y


def _sizes(module: Any, x: Tensor) -> Any:
    n = x.shape[0]
    y = x.view(n * 2, 2).expand(3, -1, -1) + n
    return y, n, x.stride(0) + x.numel(), x.new_zeros(n + 1, n * n).flatten(), x.reshape(-1)[n:], torch.arange(n // 2)


def _chunks(module: Any, x: Tensor) -> Any:
    """Pads and cuts an axis into chunks: its sizes have many guards."""
    n, size = x.shape[1], 8
    padded = nn.functional.pad(x, (0, 0, 0, (size - n % size) % size))
    chunks = padded.reshape(x.shape[0], -1, size, 4)
    sums = (chunks[:, :, :, None] * chunks[:, :, None]).sum(-1).cumsum(-1).permute(0, 2, 1, 3)
    moved = torch.cat([torch.zeros_like(chunks[:, :1]), chunks], 1)[:, :-1]
    scaled = torch.einsum("bcsd,bcsd->bcs", sums.transpose(1, 2) @ moved, chunks)[..., None] * chunks
    return scaled.reshape(x.shape[0], -1, 4)[:, :n]


def _data(module: Any, x: Tensor) -> Any:
    rows = x[x[:, 0] > 0]
    n = (x > 0).sum().item()
    torch._check(n >= 0)
    return rows + 1, torch.zeros(n), x.nonzero().float().mean(0), rows.shape[0]


@torch.library.custom_op("faster_tracing_test::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    """Multiplies."""
    return x * factor


@scaled.register_fake
def _(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


class Doubled(torch.autograd.Function):
    """Doubles."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Doubles."""
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Doubles."""
        return gradient * 2


def _graphs(module: Any, x: Tensor) -> Any:
    """Edits a graph without new code for it: the old code runs."""
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    for node in graph.graph.find_nodes(op="call_module", target="0"):
        node.op, node.target = "call_function", torch.sigmoid
    return graph(x)


def _generated(module: Any, x: Tensor) -> Any:
    """Calls functions ``forward`` that are equal but for their file."""
    for name in ("one.py", "two.py"):
        variables: dict[str, Any] = {}
        exec(compile("def forward(x):\n    return x + 1", name, "exec"), variables)
        x = variables["forward"](x)
    return x


class Failing(nn.Module):
    """Raises in the third call of a module."""

    def __init__(self, error: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.error = error

    def forward(self, x: Tensor) -> Any:
        """(n, 4) to nothing."""
        for layer in self.layers:
            x = layer(x).relu()
        return self.error(x)


def _attention(module: Any, x: Tensor) -> Any:
    return module.layer(x[None])


_LINEAR = {"linear": nn.Linear(4, 4)}
MODULES: dict[str, tuple[nn.Module, tuple[Any, ...], Any]] = {
    "twice": (Twice(), (X,), ROWS),
    "weights": (Weights(), (X.clone(),), None),
    "weights_dynamic": (Weights(), (X.clone(),), ROWS),
    "weights_in_training": (Weights().train(), (X.clone(),), None),
    "cond": (Function(_counted), (X,), ROWS),
    "cond_trees": (Function(_branches), (X,), ROWS),
    "while_loop": (Function(_loop, weight=nn.Parameter(torch.rand(4, 4))), (X,), None),
    "scan": (Function(_scan), (X,), None),
    "vmap": (Function(lambda m, x: torch.func.vmap(lambda row: row.flip(0) * m.linear(row))(x), **_LINEAR), (X,), ROWS),
    "modes": (Function(_modes, **_LINEAR), (X,), ROWS),
    "sizes": (Function(_sizes), (X,), ROWS),
    "chunks": (Function(_chunks), (torch.randn(2, 6, 4),), ({0: A, 1: A},)),
    "data": (Function(_data), (X,), ROWS),
    "custom_operator": (Function(lambda m, x: scaled(x, 2.0).T), (X,), ROWS),
    "autograd_function": (Function(lambda m, x: Doubled.apply(x) + 1), (X,), ROWS),
    "edited_graph": (Function(_graphs), (X,), None),
    "generated_forwards": (Function(_generated), (X,), None),
    "graph_module": (nn.Sequential(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))), (X,), ROWS),
    "subclass": (Function(lambda m, x: x @ m.w, w=nn.Parameter(TwoTensor(torch.rand(4, 4), X.T @ X))), (X,), None),
    "subclass_input": (Function(lambda m, x: x.sin() + x.a), (TwoTensor(X, X + 1),), None),
    "encoder": (Function(_attention, layer=nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)), (X,), ROWS),
    "lstm": (Function(lambda m, x: m.lstm(x), lstm=nn.LSTM(4, 3, 2)), (X,), None),
    "no_weights": (Function(lambda m, xs: {"sum": xs[0] + xs[1], "list": [xs[0], None, 3]}), ((X, X[:1]),), None),
    "complex": (Function(lambda m, x: torch.view_as_real(torch.fft.rfft(x).conj() * 2)), (X,), ROWS),
    "convolutions": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        (torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last),),
        ROWS,
    ),
    "checkpoint": (
        Function(lambda m, x: torch.utils.checkpoint.checkpoint(m.linear, x, use_reentrant=False), **_LINEAR),
        (X,),
        None,
    ),
}
"""Name → module, arguments and dims."""

FAILURES: dict[str, tuple[nn.Module, tuple[Any, ...], Any]] = {
    "index_error": (Failing(lambda x: x.shape[2]), (X,), ROWS),
    "shape": (Failing(lambda x: x @ x), (X,), None),
    "data": (Failing(lambda x: (x,) if x.sum() > 0 else x), (X,), ROWS),
    "number": (Failing(lambda x: range(int(x.sum().item()))[2]), (X,), None),
    "output": (Failing(lambda x: object()), (X,), None),
    "operator": (Failing(lambda x: torch.ops.aten.relu.default(x, x)), (X,), None),
}
"""Name → a module that cannot be captured."""
