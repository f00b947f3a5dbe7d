"""Quantized weights for Qualcomm's NPUs."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir import DataType

from fx_onnx.backends.legalization.npu_weights import (
    legalize_dequantization_by_channel,
    legalize_ranks_of_block_products,
    legalize_zero_points,
)
from fx_onnx.backends.qnn_compiler import run_program
from tests.backends.test_qnn_compiler import needs_package
from tests.passes.checking import check, model

X, SIGNED, UNSIGNED = torch.randn(3, 2), DataType.INT4, DataType.UINT4
ROUNDED = "<float s = {0.1}, uint8 z = {128}, float[4] by = {0.5, 1.0, 2.0, 0.25}>"
LAYER = "a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z) {} "
LAYER += "n = QuantizeLinear(m, s, z) y = DequantizeLinear(n, s, z)"


def weight(dtype: DataType, *sizes: int) -> ir.Tensor:
    numbers = np.arange(int(np.prod(sizes))).reshape(sizes) * 7 % 15 - (7 if dtype.is_signed() else 0)
    return ir.Tensor(numbers.astype(dtype.numpy()), dtype=dtype)


def with_weight(text: str, tensor: ir.Tensor) -> ir.Model:
    """Returns a model whose input ``w`` is a weight, with ``tensor`` as its value."""
    program = model(text, opset=21)
    value = next(value for value in program.graph.inputs if value.name == "w")
    program.graph.inputs.remove(value)
    value.const_value = tensor
    program.graph.register_initializer(value)
    return program


def of_products(layer: str, dtype: DataType, given: str, *sizes: int) -> ir.Model:
    """Returns a layer between quantized numbers, whose weight ``d`` has a scale for each channel or block."""
    small = dtype.name.lower()
    text = f"g (float[3,2] x, {small}[{','.join(map(str, sizes))}] w) => (float y) {ROUNDED}"
    body = f"{{ d = DequantizeLinear<{given}>(w, by) {LAYER.format(layer)} }}"
    return with_weight(text + body, weight(dtype, *sizes))


@pytest.mark.parametrize("block", ["", "<axis=0, block_size=2>"])
def test_zero_points_are_written(block: str) -> None:
    scale = "float[1,2] s = {0.5, 2.0}" if block else "float s = {0.5}"
    text = f"g (float[2,2] x, int4[2,2] w) => (float[2,2] y) <{scale}>"
    text += f"{{ d = DequantizeLinear{block}(w, s) y = Add(x, d) }}"
    program = with_weight(text, weight(SIGNED, 2, 2))
    check(program, legalize_zero_points, [X[:2]], ["DequantizeLinear", "Add"])
    zero = program.graph[0].inputs[2]
    assert zero.dtype == SIGNED and zero.shape == program.graph[0].inputs[1].shape


@pytest.mark.parametrize("layer", ["m = MatMul(b, d)", "m = Gemm(b, d)", "c = MatMul(b, d) m = Relu(c)"])
@pytest.mark.parametrize("dtype", [DataType.INT8, SIGNED])
def test_a_layer_of_quantized_numbers_keeps_scales_by_channel(layer: str, dtype: DataType) -> None:
    program = of_products(layer, dtype, "axis=1", 2, 4)
    assert not legalize_dequantization_by_channel(program).modified


def test_other_scales_by_channel_become_factors() -> None:
    text = """g (float[3,2] x) => (float[3,3] y) <int8[2,3] w = {1, 2, 3, 4, 5, 6}, float[3] s = {0.5, 1, 2}>
    { d = DequantizeLinear<axis=1>(w, s) y = MatMul(x, d) }"""
    check(model(text), legalize_dequantization_by_channel, [X], ["Cast", "Mul", "MatMul"])
    program = of_products("m = MatMul(b, d)", UNSIGNED, "axis=1", 2, 4)
    assert legalize_dequantization_by_channel(program).modified


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("zero", [False, True])
def test_blocks(axis: int, zero: bool) -> None:
    sizes = [4, 4]
    sizes[axis] = 2
    count = f"{sizes[0]},{sizes[1]}"
    names = f"<float[{count}] s = {{1, 2, 3, 4, 5, 6, 7, 8}}, int8[{count}] z = {{1, 2, 3, 4, 0, -1, -2, -3}}>"
    text = f"""g (float[4,4] x, int8[4,4] w) => (float[4,4] y) {names}
    {{ d = DequantizeLinear<axis={axis}, block_size=2>(w, s{", z" if zero else ""}) y = Add(x, d) }}"""
    program = with_weight(text, weight(DataType.INT8, 4, 4))
    expected = ["Cast", "Reshape", "Unsqueeze", "Mul", "Reshape", "Add"] + ["Cast", "Unsqueeze", "Sub"] * zero
    check(program, legalize_dequantization_by_channel, [torch.randn(4, 4)], expected)


@pytest.mark.parametrize("sizes", [(16,), (3, 16), (2, 3, 16), (2, 1, 3, 16)])
def test_axes_of_a_product(sizes: tuple[int, ...]) -> None:
    shape = ",".join(map(str, sizes))
    packed = f"uint8[2,1,8] w = {{{', '.join(map(str, range(16)))}}}, float[2,1] s = {{1, 2}}"
    text = f"""g (float[{shape}] x) => (float[{",".join(map(str, (*sizes[:-1], 2)))}] y) <{packed}>
    {{ y = local.MatMulNBits<K=16, N=2, bits=4, block_size=16>(x, w, s) }}"""
    program = model(text)
    program.graph[0].domain = "com.microsoft"
    program.graph.opset_imports["com.microsoft"] = 1
    reshapes = [] if len(sizes) == 3 else ["Reshape", "Reshape"]
    check(program, legalize_ranks_of_block_products, [torch.randn(sizes)], [*reshapes, "MatMulNBits"])


@needs_package
def test_the_npu_reads_signs(tmp_path: Path) -> None:
    """Without the zero point, the numbers of the weight are wrong."""
    text = (
        "g (float[2,2] x, int4[2,2] w) => (float[2,2] y) <float s = {0.5}> { d = DequantizeLinear(w, s) y = Add(x, d) }"
    )
    x, errors = np.zeros((2, 2), np.float32), []
    for change in (lambda program: None, legalize_zero_points):
        program = with_weight(text, weight(SIGNED, 2, 2))
        change(program)
        ir.save(program, tmp_path / "m.onnx")
        np.savez(tmp_path / "in.npz", x=x)
        assert run_program(tmp_path / "m.onnx", tmp_path / "in.npz", tmp_path / "out.npz")[0]
        wanted = weight(SIGNED, 2, 2).numpy().astype(np.float32) * 0.5
        errors.append(float(np.abs(np.load(tmp_path / "out.npz")["y"] - wanted).max()))
    assert errors[1] < 1e-2 < errors[0]
