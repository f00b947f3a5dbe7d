"""The ONNX forms of dequantized weights: DequantizeLinear, or integers of 4 or 2 bits, a table and a product."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model.dtypes import is_float, since_opset
from fx_onnx.onnx_model.weights import computed
from fx_onnx.quantized_weights.stored_forms import FORMS
from fx_onnx.quantized_weights.weight_operators import FLOAT4_VALUES, exponents_as_floats
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.known_sizes import record_sizes
from fx_onnx.translations._quantize_linear import packed_weight, scale_layout

__all__ = ["float4_weight", "is_float4"]


@translates("fx_onnx::stored")
def stored(op: Emitter, sources: Sequence[Value], form: str, numbers: Sequence[int]) -> Value:
    """Adds a weight that is computed from other weights when it is saved."""
    tensors = [value.const_value for value in sources]
    known = [tensor for tensor in tensors if tensor is not None]
    if len(known) < len(tensors):
        raise NotImplementedError("a packed weight must be a parameter or a buffer of the module, not computed")
    function = functools.partial(_unpacked, form, tuple(numbers))
    tensor = computed(function, *known, dtype=op.out_dtype, shape=[int(size) for size in op.out_sizes])
    return _added(op, tensor, f"{known[0].name}_codes")


def _unpacked(form: str, numbers: Sequence[int], *tensors: torch.Tensor) -> torch.Tensor:
    return FORMS[form](*tensors, *numbers).contiguous()


def _added(op: Emitter, tensor: ir.TensorProtocol, name: str) -> Value:
    """Registers a weight in the model's graph, under a name that is made unique."""
    graph = op.root.graph
    tensor.name = name = op.names.unique(name)
    value = Value(name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return record_sizes(value, tensor.shape.numpy())


@translates("fx_onnx::dequantize")
def dequantized_weight(
    op: Emitter, data: Value, scale: Value, zero: Value | None, offset: Value | None, table: Value | None,
    blocks: Sequence[int], kind: str, bits: int, dtype: torch.dtype,
) -> Value:  # fmt: skip
    """Emits DequantizeLinear where the opset has it for the layout of the scales, else the arithmetic."""
    blocks = [min(block, int(size)) for block, size in zip(blocks, op.sizes(data), strict=False)]
    is_half = dtype == torch.float16 and scale.dtype == DataType.FLOAT16  # the product of others is rounded once
    floats = _floats(op, scale, DataType.FLOAT16 if is_half else DataType.FLOAT)
    plain = kind == "numbers" and offset is None and (zero is None or zero.dtype is None or not is_float(zero.dtype))
    node = _dequantize_linear(op, data, floats, zero, blocks, bits) if plain else None
    if node is None:
        steps = [("Sub", zero), ("Mul", floats), ("Add", offset)]
        given = [(name, value) for name, value in steps if value is not None]
        node = _arithmetic(op, _numbers(op, data, table, kind, bits), blocks, given)
    return op.cast(node, dtype)


def is_float4(kind: str, zero: Any, offset: Any) -> bool:
    """Returns whether a weight has codes of 4-bit floats, which only some runtimes take."""
    return kind == "float4_e2m1" and zero is None and offset is None


def float4_weight(
    op: Emitter, data: Value, scale: Value, zero: Value | None, offset: Value | None, table: Value | None,
    blocks: Sequence[int], kind: str, bits: int, dtype: torch.dtype,
) -> Value:  # fmt: skip
    """Emits DequantizeLinear of FLOAT4E2M1."""
    codes = data.const_value
    layout = scale_layout(op.sizes(data), blocks)
    if codes is None or layout is None or op.opset < since_opset(DataType.FLOAT4E2M1):
        return dequantized_weight(op, data, scale, zero, offset, table, blocks, kind, bits, dtype)
    given: dict[str, Any] = {"dtype": DataType.FLOAT4E2M1, "shape": codes.shape.numpy()}
    weight = _added(op, computed(lambda values: values, codes, **given), f"{data.name}_float4")
    exponents = _exponents(op, scale)
    result = op.DequantizeLinear(
        weight, _floats(op, scale, DataType.FLOAT) if exponents is None else exponents, axis=layout.axis,
        block_size=layout.block, output_dtype=None if exponents is None else DataType.FLOAT,
    )  # fmt: skip
    result.type = ir.TensorType(DataType.FLOAT)
    return op.cast(op.with_sizes(result, op.sizes(data)), dtype)


def _floats(op: Emitter, scale: Value, dtype: DataType) -> Value:
    """Returns scales as floats; exponents (UINT8) as FLOAT8E8M0 from opset 24 on, else as indices into a table."""
    sizes = op.sizes(scale)
    if scale.dtype == DataType.UINT8:
        exponents = _exponents(op, scale)
        numbers = exponents_as_floats(torch.arange(256, dtype=torch.uint8))
        scale = _looked_up(op, op.constant(numbers.numpy()), scale, 8) if exponents is None else exponents
    floats = op.with_sizes(op.cast(scale, dtype), sizes)
    floats.shape = ir.Shape([int(size) for size in sizes])  # passes that turn the weight read it
    return floats


def _exponents(op: Emitter, scale: Value) -> Value | None:
    """Returns exponents that are stored in UINT8 as FLOAT8E8M0; None below opset 24, and for other scales."""
    tensor = scale.const_value
    if scale.dtype != DataType.UINT8 or tensor is None or op.opset < since_opset(DataType.FLOAT8E8M0):
        return None
    given: dict[str, Any] = {"dtype": DataType.FLOAT8E8M0, "shape": tensor.shape.numpy()}
    return _added(
        op, computed(lambda codes: codes.view(torch.float8_e8m0fnu), tensor, **given), f"{scale.name}_exponents"
    )


def _looked_up(op: Emitter, table: Value, codes: Value, bits: int) -> Value:
    """Returns the numbers of codes; a weight of codes is stored in the fewest bits that the opset has."""
    indices = op.cast(packed_weight(op, codes, 0, 2**bits - 1), DataType.INT32)
    return op.with_sizes(op.Gather(table, indices), op.sizes(codes))


def _dequantize_linear(
    op: Emitter, data: Value, scale: Value, zero: Value | None, blocks: Sequence[int], bits: int
) -> Value | None:
    """Emits one DequantizeLinear; None if the opset has none for the layout of the scales."""
    sizes = [int(size) for size in op.sizes(data)]
    shape = [int(size) for size in op.sizes(scale)]
    shape = [1] * (len(sizes) - len(shape)) + shape
    layout = scale_layout(
        sizes, blocks or [size if count == 1 else 1 for size, count in zip(sizes, shape, strict=True)]
    )
    if layout is None or (layout.block is not None and op.opset < 21):
        return None
    wanted = [] if layout.axis is None else [sizes[layout.axis]] if layout.block is None else shape
    low = 0 if data.dtype == DataType.UINT8 else -(2 ** (bits - 1))
    low_bits = packed_weight(op, data, low, low + 2**bits - 1) if bits < 8 else data
    if zero is not None:
        zero = op.reshape(op.cast(zero, data.dtype or DataType.INT8), wanted)
        zero = packed_weight(op, zero, low, low + 2**bits - 1) if low_bits is not data else zero
        zero = op.cast(zero, low_bits.dtype or DataType.INT8)
    scale = op.reshape(scale, wanted)
    result = op.DequantizeLinear(low_bits, scale, zero, axis=layout.axis, block_size=layout.block)
    result.type = ir.TensorType(scale.dtype or DataType.FLOAT)
    return op.with_sizes(result, sizes)


def _numbers(op: Emitter, data: Value, table: Value | None, kind: str, bits: int) -> Value:
    """Returns the numbers of a weight in FLOAT; integers are stored in the fewest bits that the opset has."""
    if kind != "numbers":
        return _looked_up(
            op, op.constant(FLOAT4_VALUES) if table is None else op.cast(table, DataType.FLOAT), data, bits
        )
    low = 0 if data.dtype == DataType.UINT8 else -(2 ** (bits - 1))
    codes = packed_weight(op, data, low, low + 2**bits - 1) if bits < 8 else data
    return op.with_sizes(op.cast(codes, DataType.FLOAT), op.sizes(data))


def _arithmetic(op: Emitter, numbers: Value, blocks: Sequence[int], steps: Sequence[tuple[str, Value]]) -> Value:
    """Emits operators on numbers and their parameters in FLOAT: a block of an axis becomes an axis.

    A last block that is shorter is padded, and cut again.
    """
    sizes = [int(size) for size in op.sizes(numbers)]
    counts = [-(-size // block) for size, block in zip(sizes, blocks, strict=False)]
    split = [axis for axis, count in enumerate(counts) if 1 < count < sizes[axis]]
    whole = [counts[axis] * blocks[axis] if axis in split else size for axis, size in enumerate(sizes)]
    if whole != sizes:
        missing = [new - old for new, old in zip(whole, sizes, strict=True)]
        numbers = op.with_sizes(op.Pad(numbers, [*(0 for _ in sizes), *missing]), whole)
    shape: list[Size] = []
    for axis, size in enumerate(whole):
        shape += [counts[axis], blocks[axis]] if axis in split else [size]
    result, axes = op.reshape(numbers, shape), [axis + 1 + before for before, axis in enumerate(split)]
    for name, parameter in steps:
        result = op.emit(name, result, op.unsqueeze(op.cast(parameter, DataType.FLOAT), *axes))
    result = op.reshape(op.with_sizes(result, shape), whole)
    if whole == sizes:
        return result
    return op.with_sizes(op.Slice(result, [0] * len(sizes), sizes, list(range(len(sizes)))), sizes)
