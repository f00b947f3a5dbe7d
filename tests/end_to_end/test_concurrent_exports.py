"""Exports in several threads, and eager runs in other threads during an export."""

import math
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx._symbolic_trace import is_fx_tracing
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import fx_onnx


class Packed(nn.Module):
    """An LSTM with packed sequences; its weights are in a list beside the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed, _ = self.lstm(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(packed, batch_first=True)[0]


class Sizes(nn.Module):
    """Functions of Python that are replaced during a capture."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        scaled = self.linear(x) / math.sqrt(x.shape[0]) * max(len(x), 2)
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (scaled,))


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Sin", x)


class Function(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return Sine.apply(x * self.scale)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[None])[0] + self.count


_ROWS = ({0: "n"},)
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]], Any]] = {
    "packed": (
        Packed, lambda: (torch.randn(3, 5, 4), torch.tensor([5, 3, 2])), ({0: "batch", 1: "time"}, {0: "batch"})
    ),
    "sizes": (Sizes, lambda: (torch.randn(3, 4),), _ROWS),
    "function": (Function, lambda: (torch.randn(3, 4),), _ROWS),
    "attention": (Attention, lambda: (torch.randn(3, 4),), _ROWS),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def test_four_threads_export_at_once() -> None:
    def export(name: str) -> None:
        make, arguments, dynamic_shapes = CASES[name]
        for _ in range(2):
            fx_onnx.export(make().eval(), arguments(), dynamic_shapes=dynamic_shapes, verify=True)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(export, name) for name in CASES]:
            done.result()
    assert not is_fx_tracing(), "torch.compile works as before"


def test_four_threads_export_one_model_to_the_same_bytes() -> None:
    model, arguments = Function().eval(), (torch.ones(3, 4),)
    with ThreadPoolExecutor(4) as threads:
        exports = [threads.submit(fx_onnx.export, model, arguments, dynamic_shapes=_ROWS) for _ in range(4)]
        assert len({done.result().model_proto.SerializeToString() for done in exports}) == 1


@pytest.mark.parametrize("name", CASES)
def test_an_eager_run_during_exports_sees_nothing(name: str) -> None:
    make, arguments, dynamic_shapes = CASES[name]
    model, args = make().eval(), arguments()
    with torch.no_grad():
        expected = model(*args)
    started, stop, runs = threading.Event(), threading.Event(), [0]

    def run() -> None:
        try:
            while not stop.is_set():
                with torch.no_grad():
                    result = model(*args)
                assert type(result) is Tensor
                assert torch.equal(result, expected)
                assert not torch.compiler.is_compiling()
                assert not torch.onnx.is_in_onnx_export()
                assert not fx_onnx.is_in_onnx_export()
                runs[0] += 1
                started.set()
        finally:
            started.set()

    with ThreadPoolExecutor(1) as threads:
        eager = threads.submit(run)
        assert started.wait(10)
        before = runs[0]
        try:
            for _ in range(2):
                program = fx_onnx.export(model, args, dynamic_shapes=dynamic_shapes)
        finally:
            stop.set()
        eager.result()
    assert runs[0] > before + 3
    assert not is_fx_tracing(), "torch.compile works as before"
    torch.testing.assert_close(program(*args)[0], expected)


class Nested(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        fx_onnx.export(nn.ReLU(), (torch.ones(2),))
        return x + 1


def test_a_nested_export_is_refused() -> None:
    with pytest.raises(fx_onnx.CaptureError, match=r"^export\(\) was called while the same thread captures") as caught:
        fx_onnx.export(Nested(), (torch.ones(2),))
    assert caught.value.message.count(". ") == 0
    assert fx_onnx.export(nn.ReLU(), (torch.ones(2),))(-torch.ones(2))[0].tolist() == [0, 0]
