"""Exports ordinary models with a package that lacks the folders of rooms, and asks for what the rooms do.

``tests/test_deleted_rooms.py`` runs this file in a copy of the package, as a script with the names of the rooms. It
exports all the models without all rooms, and the first of them without one room.
"""

from __future__ import annotations

import copy
import io
import sys
import warnings
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization.fake_quantize import FakeQuantize
from torch.nn.utils import rnn

import fx_onnx
from fx_onnx import OnnxExporterError, OnnxExporterWarning


class Function(nn.Module):
    """Computes a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        """Takes the arguments of the function."""
        return self.function(*args)


class Counter(nn.Module):
    """Writes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Counts the calls."""
        self.count.add_(1)
        return x + self.count


class Gelu(torch.autograd.Function):
    """A function with a symbolic method."""

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        """Emits one node."""
        return g.op("Relu", x)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Computes a ReLU."""
        return x.relu()


class Quantized(nn.Module):
    """A product with a weight of 8 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-9, 9, (4, 4), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 4) to (batch, 4)."""
        return x @ (self.weight.float() * self.scale)


F = nn.functional
_X, _IMAGE, _TOKENS = torch.randn(3, 4), torch.randn(1, 3, 8, 8), torch.randint(0, 9, (2, 5))
_ATTENTION, _RECURRENCE = nn.MultiheadAttention(8, 2, batch_first=True), nn.LSTM(4, 3, batch_first=True)
MODELS: list[tuple[nn.Module, tuple[Tensor, ...]]] = [
    (nn.Linear(4, 4), (_X,)),
    (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout()), (_X,)),
    (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), (_IMAGE,)),
    (nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1)), (_IMAGE,)),
    (nn.Sequential(nn.Embedding(9, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), (_TOKENS,)),
    (nn.LSTM(4, 3), (_X[None],)),
    (nn.GRU(4, 3, bidirectional=True), (_X[None],)),
    (Function(lambda x: _ATTENTION(x, x, x)[0]), (torch.randn(2, 5, 8),)),
    (Function(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")), (_IMAGE,)),
    (Function(lambda x: F.pad(x, (1, 2), mode="constant").softmax(1)), (_X,)),
    (Function(lambda x: x.sort(1, descending=True)[0].cumsum(0)), (_X,)),
    (Function(lambda x: x.topk(2)[1]), (_X,)),
    (Function(lambda x: x[x[:, 0] > 0].sum(0)), (_X,)),
    (Function(lambda x, y: torch.linalg.inv(x.T @ x + torch.eye(4)) @ y), (_X, torch.randn(4))),
    (Function(lambda x: torch.where(x > 0, x.log1p(), x.expm1()).std(0)), (_X,)),
    (Function(lambda x: torch.einsum("ij,kj->ik", x, x).tril()), (_X,)),
    (Function(lambda x: x.scatter(1, torch.zeros(3, 1, dtype=torch.int64), 1.0).clamp(-1, 1)), (_X,)),
    (Function(lambda x: torch.func.vmap(lambda row: row.flip(0) * 2)(x)), (_X,)),
    (Counter(), (_X,)),
]


def check_models(models: list[tuple[nn.Module, tuple[Tensor, ...]]]) -> None:
    """Raises an AssertionError if a result of an exported model differs from the module's."""
    for model, args in models:
        program = fx_onnx.export(model.eval(), args)
        expected = copy.deepcopy(model)(*args)
        first = expected[0] if isinstance(expected, tuple) else expected
        torch.testing.assert_close(program(*args)[0], first, rtol=1e-4, atol=1e-5)
    fx_onnx.export(nn.Linear(4, 4), (_X,), io.BytesIO(), opset_version=23)


_export = partial(fx_onnx.export, nn.Linear(4, 4), (_X,))
_program = _export()
ASKED: dict[str, list[Callable[[], Any]]] = {
    "applications": [
        lambda: fx_onnx.export_pretrained("folder", "other"),
        lambda: fx_onnx.text_generation_arguments(nn.Linear(4, 4)),
        lambda: _program.save_genai("folder"),
    ],
    "backends": [
        lambda: _export(opset_version=17),
        lambda: _export(target="openvino"),
        lambda: _program.supports("openvino"),
    ],
    "cli": [],
    "compat": [
        lambda: fx_onnx.export(Function(Gelu.apply), (_X,)),
        lambda: _export(use_external_data_format=True),
        lambda: _export(export_modules_as_functions=True),
        lambda: _export(custom_translation_table={torch.ops.aten.relu.default: lambda g, x: g.op("Relu", x)}),
        lambda: fx_onnx.register_custom_op_symbolic,
        lambda: fx_onnx.symbolic_helper.parse_args,
        lambda: fx_onnx.verification.find_mismatch,
    ],
    "complex_tensors": [
        lambda: fx_onnx.export(Function(lambda x: torch.fft.rfft(x).abs()), (_X,)),
        lambda: fx_onnx.export(Function(lambda x: torch.complex(x, x).abs()), (_X,)),
    ],
    "custom_translations": [
        lambda: fx_onnx.export(Function(Gelu.apply), (_X,)),
        lambda: _export(custom_translation_table={torch.ops.aten.relu.default: lambda op, x: op.Relu(x)}),
        lambda: _export(autograd_inlining=False),
    ],
    "data_branches": [
        lambda: fx_onnx.export(Function(lambda x: x[:, 0].nonzero().squeeze() + 1), (_X,)),
        lambda: fx_onnx.export(Function(lambda x: x + 1 if x.sum() > 0 else x), (_X,)),
    ],
    "faster_tracing": [],
    "gradients": [
        lambda: fx_onnx.export(Function(torch.func.grad(lambda x: x.sin().sum())), (_X,)),
        lambda: fx_onnx.export(Function(_gradient), (_X,)),
    ],
    "integrations": [lambda: fx_onnx.replacing_torch_onnx()],
    "libraries": [lambda: fx_onnx.export(*_detection())],
    "packed_sequences": [lambda: fx_onnx.export(Function(_packed), (_X[None], torch.tensor([3])))],
    "quantized_weights": [
        lambda: fx_onnx.export(Quantized(), (_X,)),
        lambda: fx_onnx.export(FakeQuantize(), (_X,)),
        lambda: fx_onnx.quantize(_program, [_X]),
    ],
    "references": [lambda: _program.save("model.onnx", weights_from="model.safetensors")],
    "report": [lambda: _program.save_html("report.html"), lambda: _program.view(), lambda: _export(report=True)],
    "saved_programs": [lambda: fx_onnx.export("model.pt2"), lambda: fx_onnx.export(_loaded(), (_X,))],
    "torchscript": [
        lambda: fx_onnx.export(torch.jit.script(nn.ReLU()), (_X,)),
        lambda: fx_onnx.export(nn.Sequential(torch.jit.script(nn.ReLU())), (_X,)),
    ],
    "verification": [lambda: _program.verify(), lambda: fx_onnx.verify(_program, (_X,)), lambda: _export(verify=True)],
}


def _gradient(x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(x.tanh().sum(), x)[0]


def _packed(x: Tensor, lengths: Tensor) -> Any:
    return rnn.pad_packed_sequence(_RECURRENCE(rnn.pack_padded_sequence(x, lengths, True))[0], True)


def _loaded() -> torch.export.ExportedProgram:
    file = io.BytesIO()
    shapes = ({0: torch.export.Dim("rows")},)
    torch.export.save(torch.export.export(nn.Linear(4, 4), (_X,), dynamic_shapes=shapes), file)
    file.seek(0)
    return torch.export.load(file)


def _detection() -> tuple[nn.Module, tuple[Tensor, ...]]:
    from tests.torchvision_cpu import torchvision

    boxes = torch.rand(4, 4).cumsum(1)
    return Function(torchvision.ops.batched_nms), (boxes, torch.rand(4), torch.zeros(4), torch.tensor(0.5))


def main(rooms: list[str]) -> None:
    """Exports the models, and prints one line for each request that the package refuses."""
    check_models(MODELS if len(rooms) == len(ASKED) else MODELS[:3])
    for ask in chain.from_iterable(ASKED[room] for room in rooms):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            try:
                ask()
            except OnnxExporterError as error:
                print("refused:", " ".join(str(error).split()))
                continue
        told = [str(each.message) for each in found if issubclass(each.category, OnnxExporterWarning)]
        print("told:" if told else "done", *(" ".join(each.split()) for each in told))


if __name__ == "__main__":
    main(sys.argv[1:])
