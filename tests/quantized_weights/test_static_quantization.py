"""Static quantization: what becomes integers, what stays, how far the results are, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import ArgumentError
from tests.models.static_networks import Residual, Tied, computed_in, images, program

F = nn.functional


@pytest.mark.parametrize("opset", [13, 17, 20, 21, 23])
def test_convolutions(opset: int, tmp_path: Path) -> None:
    """All layers and the Add compute with integers, for other sizes too; the given program does not change."""
    old = program(Residual(), images(), opset_version=opset, input_names=["image"], output_names=["scores"])
    before = old.model_proto.SerializeToString(deterministic=True)
    new = fx_onnx.quantize(old, [images() for _ in range(3)])
    assert new.kept == () and 0 < new.distance < 0.05
    operators = computed_in(new.program, tmp_path)
    assert (operators["QLinearConv"], operators["QLinearAdd"], operators["QGemm"]) == (2, 1, 1)
    assert not operators.keys() & {"Conv", "FusedConv", "Gemm", "Add"}
    assert old.model_proto.SerializeToString(deterministic=True) == before
    assert new.program.verify(images(7), rtol=0.1).ok and not new.program.verify(images(7)).ok
    assert [*map(str, new.program.dims)] == [*map(str, old.dims)]
    assert "image: float[batch, 3, 16, 16]" in repr(new.program) and "scores: float[batch, 4]" in repr(new.program)
    assert new.program.model.producer_name == "fx_onnx"
    assert all(value.shape is not None for node in new.program.model.graph for value in node.outputs)


@pytest.mark.parametrize(
    ("make", "example"),
    [
        (lambda: nn.ConvTranspose2d(4, 6, 3, 2), torch.randn(2, 4, 7, 7)),
        (lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), torch.randn(2, 4, 7, 7)),
        (lambda: nn.Sequential(nn.Conv1d(4, 8, 3, dilation=2), nn.ReLU6(), nn.Conv1d(8, 2, 1)), torch.randn(2, 4, 9)),
        (lambda: nn.Conv3d(2, 3, 3), torch.randn(2, 2, 5, 5, 5)),
        (lambda: nn.Sequential(nn.Linear(8, 16, bias=False), nn.GELU(), nn.Linear(16, 3)), torch.randn(3, 8)),
        (lambda: nn.Linear(8, 16), torch.randn(3, 2, 8)),
        (Tied, torch.randn(3, 8)),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(scale_factor=2), nn.Conv2d(4, 4, 3)), images()),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.Conv2d(4, 4, 3), nn.Hardswish()), images()),
    ],
)
@pytest.mark.parametrize("ranges", ["minmax", "percentile"])
def test_layers(make: Callable[[], nn.Module], example: Tensor, ranges: str) -> None:
    """ONNX Runtime computes what the standard says, for each kind of layer."""
    old = program(make(), example)
    new = fx_onnx.quantize(old, [example], ranges=ranges)
    assert new.kept == () and 0 < new.distance < 0.1
    torch.testing.assert_close(new.program(example), new.program.call_reference(example), rtol=1e-2, atol=3e-2)


def test_layers_that_stay_in_floats() -> None:
    """One layer reads an outlier beside small numbers, which 8 bits cannot hold; the others are quantized."""

    class Outlier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.fine, self.last = nn.Linear(8, 8), nn.Linear(9, 8), nn.Linear(8, 8)
            self.fine.weight.data[:, -1] = 0

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            return self.last(self.fine(torch.cat([y, torch.full_like(y[:, :1], 1e3)], 1)))

    rows = [torch.randn(16, 8) for _ in range(3)]
    new = fx_onnx.quantize(program(Outlier(), rows[0]), rows)
    assert new.kept == ("fine",) and new.distance < 0.1
    with pytest.raises(ArgumentError, match=r"No layer can be quantized within the distance 1e-06: the least one"):
        fx_onnx.quantize(program(Outlier(), rows[0]), rows, largest_distance=1e-6)


def test_empty_inputs_among_others() -> None:
    """They do not change the ranges."""
    full, old = torch.randn(4, 8), program(nn.Linear(8, 8), torch.randn(2, 8))
    buffers = [io.BytesIO(), io.BytesIO()]
    for buffer, calibration in zip(buffers, ([full], [full[:0], full, full[:0]]), strict=True):
        fx_onnx.quantize(old, calibration).program.save(buffer)
    assert buffers[0].getvalue() == buffers[1].getvalue()


def test_inputs_that_set_no_ranges() -> None:
    """Of 16 inputs, the first 8 tell the distance: larger ones are far away, because they are limited."""
    rows, layer = [torch.randn(4, 8) for _ in range(16)], nn.Linear(8, 8)
    old = program(layer, rows[0])
    assert fx_onnx.quantize(old, rows).distance < 0.1
    larger = [*(row * 10 for row in rows[:8]), *rows[8:]]
    assert fx_onnx.quantize(old, larger, largest_distance=10).distance > 0.5
    assert fx_onnx.quantize(old, larger[1:], largest_distance=10).distance < 0.1


class Gated(nn.Module):
    """A convolution whose result is negative for positive images, and one that then gets zeros."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
        nn.init.constant_(self.first.weight, weight)
        nn.init.constant_(self.first.bias, -0.1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to (batch, 7, height, width)."""
        return torch.cat([x, self.second(self.first(x).relu())], 1)


def test_layers_that_calibration_does_not_reach() -> None:
    """A layer whose input or result is one number for all calibration inputs stays in floats."""
    given = [images().abs() for _ in range(3)]
    new = fx_onnx.quantize(program(Gated(-1.0), images()), given)
    assert new.kept == ("second",)
    with pytest.raises(ArgumentError, match="All layers get or return one number for all calibration inputs"):
        fx_onnx.quantize(program(Gated(0.0), images()), given)


def test_a_generator_is_read_once() -> None:
    """Equal calibration inputs give equal bytes, also by name and as tuples."""
    rows = [torch.randn(4, 8), torch.randn(5, 8)]
    files, layer = [], nn.Linear(8, 8)
    for calibration in (rows, iter(rows), ((row,) for row in rows), [{"input": row} for row in rows]):
        buffer = io.BytesIO()
        fx_onnx.quantize(program(layer, rows[0]), calibration).program.save(buffer)
        files.append(buffer.getvalue())
    assert files[1:] == files[:-1]


ROW = torch.randn(2, 8)


@pytest.mark.parametrize(
    ("calibration", "options", "message"),
    [
        ([], {}, "calibration is empty; give at least one input"),
        (ROW, {}, "calibration must be an iterable of inputs, such as a list, not a Tensor"),
        ({"input": ROW}, {}, "calibration must be an iterable of inputs"),
        (3, {}, "calibration must be an iterable of inputs, such as a list, not 3"),
        ([ROW, (ROW, ROW)], {}, r"calibration\[1\] does not fit: The program takes 1 input"),
        ([ROW, torch.randn(2, 7)], {}, r"calibration\[1\] does not fit: "),
        ([{"x": ROW}], {}, r"calibration\[0\] does not fit: "),
        ([ROW, ROW * torch.nan], {}, r"calibration\[1\] has NaN in the input input; leave it out"),
        ([ROW, ROW * torch.inf], {}, r"linear is not finite for calibration\[1\]; leave that out"),
        ([ROW[:0]], {}, "input is empty for all calibration inputs; give larger ones"),
        (
            [ROW, ROW * 1e9, ROW],
            {"ranges": "percentile"},
            "ONNX Runtime's tool finds no ranges .*; use ranges='minmax'",
        ),
        (
            [ROW],
            {"precision": "int8"},
            "The precision 'int8' is not one of int8-static, a16w8, a16w4, .*; did you mean",
        ),
        ([ROW], {"ranges": "max"}, "The ranges 'max' is not one of minmax, percentile"),
        ([ROW], {"largest_distance": -1}, "largest_distance must be a number that is not negative"),
        ([ROW], {"precision": "a16w8"}, "needs opset 21 or above, not 20; export with opset_version=21"),
        ([ROW], {"target": "onnxrutime"}, "did you mean 'onnxruntime'"),
        ([ROW], {"target": "tensorrt"}, "exported for onnxruntime, not for tensorrt; export it with target='tensorrt'"),
    ],
)
def test_refused(calibration: Any, options: dict[str, Any], message: str) -> None:
    """One sentence says what is wrong."""
    with pytest.raises(ArgumentError, match=message):
        fx_onnx.quantize(program(nn.Linear(8, 8), ROW), calibration, **options)


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (nn.ReLU(), {}, "has no layer that can be quantized: a convolution or a product with a float32 weight"),
        (nn.Linear(8, 8).double(), {}, "has no layer that can be quantized"),
        (nn.Linear(8, 8), {"opset_version": 12}, "needs opset 13 or above, not 12"),
        (nn.Sequential(nn.Linear(8, 8)), {"export_modules_as_functions": {nn.Linear}}, "not look into local functions"),
    ],
)
def test_refused_programs(module: nn.Module, options: dict[str, Any], message: str) -> None:
    row = ROW.to(next(module.parameters(), ROW).dtype)
    with pytest.raises(ArgumentError, match=message):
        fx_onnx.quantize(program(module, row, **options), [row])


def test_refused_results() -> None:
    """Values inside of the program, the classes of a result, and what is no program."""

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return torch.nan_to_num(self.layer(x.log()))

    class Classes(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).argmax(1)

    with pytest.raises(ArgumentError, match=r"log is not finite for calibration\[1\]; leave that out"):
        fx_onnx.quantize(program(Hidden(), ROW.abs()), [ROW.abs(), ROW])
    with pytest.raises(ArgumentError, match="No result of the program is a float"):
        fx_onnx.quantize(program(Classes(8, 8), ROW), [ROW])
    with pytest.raises(ArgumentError, match=r"program must be what fx_onnx\.export returns, not 3"):
        fx_onnx.quantize(3, [ROW])  # type: ignore[arg-type]
