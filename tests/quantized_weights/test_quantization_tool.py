"""ONNX Runtime's tool: which layers it quantizes for a target, with which numbers, and which stay in floats."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.models.static_networks import Attention, Branch, Residual, computed_in, images, program


def test_products_return_floats(tmp_path: Path) -> None:
    """Attention, normalization and the Add are not rounded."""
    tokens = [torch.randn(2, 5, 16) for _ in range(3)]
    new = fx_onnx.quantize(program(Attention(), tokens[0]), tokens)
    assert new.kept == () and new.distance < 0.02
    operators = computed_in(new.program, tmp_path)
    assert operators["MatMulIntegerToFloat"] == 2 and operators["MatMul"] + operators["FusedMatMul"] == 2
    assert not operators["QLinearAdd"] and not operators["QLinearMatMul"]


@pytest.mark.parametrize(
    ("target", "precision", "weights", "activations"),
    [
        (None, "int8-static", 64, {"UINT8"}),
        ("openvino", "int8-static", 64, {"UINT8"}),
        ("reference", "int8-static", 127, {"UINT8"}),
        ("tensorrt", "int8-static", 127, {"INT8"}),
        ("onnxruntime", "a16w8", 127, {"UINT16"}),
        ("tensorrt", "a16w8", 127, {"INT16"}),
        ("qnn", "a16w8", 127, {"UINT16"}),
        ("qnn", "a16w4", 7, {"UINT16"}),
    ],
)
def test_forms(target: str | None, precision: str, weights: int, activations: set[str]) -> None:
    """Weights have 7 bits where a runtime would saturate; TensorRT gets no zero points and biases of float32."""
    static = {"dynamic_shapes": None} if target == "qnn" else {}
    old = program(Residual(), images(), target=target, opset_version=21, **static)
    new = fx_onnx.quantize(old, [images()], precision=precision)
    assert new.distance < 0.1
    graph = new.program.model.graph
    stored = [value.const_value.numpy() for value in graph.initializers.values() if value.name.endswith("_quantized")]
    largest = max(abs(int(array.max())) for array in stored if array.dtype.name in ("int4", "int8") and array.ndim > 1)
    assert 0.9 * weights < largest <= weights
    dtypes = {node.outputs[0].dtype.name for node in graph if node.op_type == "QuantizeLinear"}
    assert dtypes == activations
    symmetric = activations <= {"INT8", "INT16"}
    zeros = [graph.initializers[name].const_value.numpy() for name in graph.initializers if "zero_point" in name]
    assert symmetric == (not any(array.any() for array in zeros))
    assert symmetric == ("INT32" not in {value.dtype.name for value in graph.initializers.values()})


def test_an_npu_gets_products_between_integers() -> None:
    """It takes scales by channel only there."""
    x = torch.randn(2, 5, 16)
    old = program(Attention(), x, opset_version=21, target="qnn", dynamic_shapes=None)
    graph = fx_onnx.quantize(old, [x], precision="a16w8", target="qnn").program.model.graph
    weights = [node for node in graph if node.op_type == "DequantizeLinear" and node.inputs[0].dtype.name == "INT8"]
    results = [next(iter(node.outputs[0].uses())).node.outputs[0] for node in weights]
    assert [[use.node.op_type for use in value.uses()] for value in results] == [["QuantizeLinear"]] * 2


def test_a_computed_bias_on_an_npu() -> None:
    """The layer stays in floats, because the NPU takes a constant bias only."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(x) + self.first(x).relu()

    x = torch.randn(4, 8)
    old = program(Sum(), x, opset_version=21, target="qnn", dynamic_shapes=None)
    assert fx_onnx.quantize(old, [x], precision="a16w8", target="qnn").kept == ("second",)


def test_bodies() -> None:
    """A layer in the body of an If is listed."""
    rows = [torch.randn(4, 8) + 1, torch.randn(4, 8) - 1]
    new = fx_onnx.quantize(program(Branch(), rows[0]), rows)
    assert new.kept == ("cond.true_graph_0.linear_1.Gemm_0",)


def test_grouped_transposed_convolutions() -> None:
    """They stay in floats, because the runtime's tool takes the scales of a group for those of all channels."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 6, 3, 2, groups=2))
    assert fx_onnx.quantize(program(model, images()), [images()]).kept == ("1",)


def test_the_weight_of_an_embedding() -> None:
    """A product with it stays in floats."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layer, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.layer(self.words(ids)))

    ids = torch.randint(20, (2, 5))
    assert fx_onnx.quantize(program(Words(), ids), [ids]).kept == ("head",)
