"""Tests of running TorchScript's operations: traced sizes, classes, enums, old operators, exceptions, refusals."""

from enum import Enum
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import CaptureError
from fx_onnx.torchscript.scripted_module import scripted_module
from tests.torchscript.agreement import agree

torch.manual_seed(0)
X = torch.randn(4, 6)


class Sizes(nn.Module):
    def forward(self, x):
        rows = x.shape[0] * x.shape[1] // 2
        return x.reshape(rows, -1), torch.arange(x.shape[0]), x[: x.shape[0] // 2 + 1], x.new_zeros(x.shape[0] - 1)


def test_sizes_of_a_traced_model_stay_symbolic():
    script = torch.jit.trace(Sizes(), X)
    program = fx_onnx.export(script, (X,), dynamic_shapes=({0: "batch"},), verify=True)
    agree(script, program, torch.randn(10, 6))


NETWORKS = {
    "LSTM": (nn.LSTM(6, 4, 2, bidirectional=True), torch.randn(3, 2, 6)),
    "GRU": (nn.GRU(6, 4, batch_first=True), torch.randn(3, 2, 6)),
    "Transformer": (nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), torch.randn(3, 2, 6)),
    "Conv": (nn.Sequential(nn.ConvTranspose2d(3, 2, 3), nn.Upsample(scale_factor=2)), torch.randn(2, 3, 4, 4)),
}


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, how):
    network, example = NETWORKS[name]
    network = nn.Sequential(network).eval()
    script = torch.jit.script(network) if how == "script" else torch.jit.trace(network, example, check_trace=False)
    program = fx_onnx.export(script, (example,), dynamic_shapes=({0: "first"},), verify=True)
    agree(script, program, torch.randn(5, *example.shape[1:]))


@torch.jit.script
class Pair:
    def __init__(self, a: Tensor, n: int):
        self.a = a
        self.n = n

    def scaled(self, x: Tensor) -> Tensor:
        self.n += 1
        return x * self.n + self.a


class Color(Enum):
    RED = 1
    BLUE = 2


class Objects(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = Pair(torch.ones(6), 3)
        self.color = Color.BLUE

    def forward(self, x: Tensor) -> Tensor:
        pair = Pair(x, 2)
        y = pair.scaled(x) + pair.scaled(x) + self.pair.a * self.pair.n
        if self.color == Color.BLUE:
            y = y * self.color.value
        if bool(x.sum() > 0):
            pair.n = 7
        return y * pair.n


def test_objects_and_enums():
    script = torch.jit.script(Objects())
    program = fx_onnx.export(script, (X,), verify=True)
    for value in (X.abs(), -X.abs()):
        agree(script, program, value)


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = Pair(torch.ones(6), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.pair.scaled(x)


def test_an_object_that_changes_is_refused():
    with pytest.raises(CaptureError, match=r"changes the attribute pair of Remembering, an object with .*n = 3"):
        fx_onnx.export(torch.jit.script(Remembering()), (X,))


class Checked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError("x has {} dims".format(x.dim()))  # noqa: UP032  TorchScript has no f-strings with methods
        return torch.jit.annotate(Tensor, torch.jit.wait(torch.jit.fork(torch.relu, x)))


def test_exceptions():
    script = torch.jit.script(Checked())
    agree(script, fx_onnx.export(script, (X,), verify=True), X)
    with pytest.raises(
        CaptureError, match=r"exception for the example arguments: x has 3 dims \(.*:\d+: raise ValueError"
    ):
        fx_onnx.export(script, (X[None],))


def by_type(value: Any, x: Tensor) -> Tensor:
    if isinstance(value, torch.Tensor):
        return value + x
    if torch.jit.isinstance(value, list[Tensor]):
        return value[1] + x
    if torch.jit.isinstance(value, tuple[Tensor, int]):
        return value[0] * value[1] + x
    if torch.jit.isinstance(value, dict[str, Tensor]):
        return value["a"] - x
    if torch.jit.isinstance(value, int):
        return x * value
    return x / 2 if torch.jit.isinstance(value, float) else x


class Types(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        given = by_type([x, x + 1], x), by_type((x + 2, 3), x), by_type({"a": x + 4}, x), by_type(x.shape[0], x)
        return [by_type(x, x), *given, by_type(2.0, x), by_type(True, x), by_type("", x)]


def test_the_types_of_values():
    script = torch.jit.script(Types().eval())
    program = fx_onnx.export(script, (X,), dynamic_shapes=({0: "rows"},))
    for rows in (4, 3):
        agree(script, program, X[:rows])


def test_an_unknown_operator_is_refused_with_its_line():
    script = torch.jit.CompilationUnit(
        "def f(x):\n    with torch.autograd.profiler.record_function('a'):\n        return x\n"
    )
    with pytest.raises(CaptureError, match=r"operator prim::Enter is not supported"):
        fx_onnx.export(script.f, (X,))


@torch.jit.script
def wrong_sizes(x: Tensor) -> Tensor:
    y = x + 1
    return y @ x


def test_an_error_of_an_operator_names_the_line_of_the_model():
    with pytest.raises(
        CaptureError, match=r"could not capture wrong_sizes: .*test_script_interpreter.py:\d+: return y @ x"
    ):
        fx_onnx.export(wrong_sizes, (X,))


def test_the_graph_runs_without_a_capture():
    network = nn.Sequential(nn.Linear(6, 3), nn.ReLU())
    torch.testing.assert_close(scripted_module(torch.jit.script(network))(X), network(X))
