"""Fusion of the arithmetic that unpacks weights of GPTQ and AWQ."""

import pytest
import torch

import fx_onnx
from tests.compare import assert_close
from tests.models.packed_layers import AwqLinear, GptqLinear

LAYERS = {
    "gptq": lambda rows, columns: GptqLinear(rows, columns),
    "gptq in the order of activations": lambda rows, columns: GptqLinear(rows, columns, act_order=True),
    "gptq of 8 bits": lambda rows, columns: GptqLinear(rows, columns, bits=8),
    "awq": lambda rows, columns: AwqLinear(rows, columns),
}


def exported(layer: torch.nn.Module, rows: int, target: str | None) -> tuple[fx_onnx.ONNXProgram, list[str]]:
    """Exports a layer, compares its results with torch, and returns the operators."""
    x = torch.randn(2, 3, rows)
    program = fx_onnx.export(layer.eval(), (x,), target=target, opset_version=21, verbose=False)
    assert_close(program(x)[0], layer(x), 1e-5)
    return program, [node.op_type for node in program.model.graph]


@pytest.mark.parametrize("rows", [64, 1024])  # small constants are folded before
@pytest.mark.parametrize("name", LAYERS)
def test_a_packed_layer(name: str, rows: int) -> None:
    """One product, behind a Gather that sorts x if the rows are not sorted. The weight is stored with its bits."""
    layer = LAYERS[name](rows, 512 if rows > 64 else 48)
    sorting = ["Gather"] if "order" in name else []
    program, operators = exported(layer, rows, None)
    assert sorted(operators) == sorted([*sorting, "DequantizeLinear", "MatMul"])
    stored = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    assert stored <= sum(buffer.nbytes for buffer in layer.state_dict().values()) + 8 * rows
    halves = ["Split", "Add"] if "8 bits" in name else []
    assert exported(layer, rows, "onnxruntime")[1] == [*sorting, "MatMulNBits", *halves]


def _zero_of_16(layer: GptqLinear) -> None:
    layer.qzeros[0, 0] = -1  # stored zeros of 15, to which the layer adds 1


def _groups_of_different_sizes(layer: GptqLinear) -> None:
    layer.g_idx[31] = 1


def _negative_group(layer: GptqLinear) -> None:
    layer.g_idx[layer.g_idx == 1] = -1


@pytest.mark.parametrize("change", [_zero_of_16, _groups_of_different_sizes, _negative_group])
def test_what_the_operator_cannot_express_keeps_the_arithmetic(change: object) -> None:
    layer = GptqLinear(64, 48)
    change(layer)
    assert "DequantizeLinear" not in exported(layer, 64, "onnxruntime")[1]


@pytest.mark.parametrize("rows", [64, 1024])
def test_other_weights_after_the_export(rows: int) -> None:
    layer, other = GptqLinear(rows, 48, act_order=True), GptqLinear(rows, 48)
    other.g_idx = layer.g_idx
    program, _ = exported(layer, rows, "onnxruntime")
    program.apply_weights(other.state_dict())
    x = torch.randn(3, 2, rows).transpose(0, 1).contiguous()
    assert_close(program(x)[0], other(x), 1e-5)


@pytest.mark.parametrize("change", [_zero_of_16, _groups_of_different_sizes])
@pytest.mark.parametrize("rows", [64, 1024])
def test_other_weights_that_the_operator_cannot_express_are_refused(change: object, rows: int) -> None:
    layer = GptqLinear(rows, 48)
    program, _ = exported(layer, rows, "onnxruntime")
    change(layer)
    with pytest.raises(fx_onnx.OnnxExporterError, match=r"packed weight .*FX1405"):
        program.apply_weights(layer.state_dict())
        program(torch.randn(2, 3, rows))
