"""Products with quantized weights that have zeros in floats, or offsets: a product with integer zeros, and a rest."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.weights import computed
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import dims, has_dtype, initializer_tensor
from fx_onnx.passes.rules import Result, rule
from fx_onnx.quantized_weights.constant_computations import Computation, computation

__all__ = ["split_affine_weights"]

_NUMBERS = "(Reshape(Cast(codes), _) | Cast(codes))"
_AFFINE = f"({_NUMBERS} - zero) * scale | {_NUMBERS} * scale + offset"
_WEIGHT = f"(Reshape({_AFFINE}, _) | {_AFFINE})"
_LIMITS = {DataType.UINT4: (0, 15), DataType.INT4: (-8, 7), DataType.UINT8: (0, 255), DataType.INT8: (-128, 127)}
_SMALLEST_BLOCK, _LARGEST_BLOCK = 16, 256


@rule(
    f"MatMul(x, Transpose({_WEIGHT}, perm=order))",
    f"Gemm(x, {_WEIGHT}, bias | None, alpha=1.0, beta=1.0, transA=0, transB=1)",
    since=21,
    where={"codes": has_dtype(*_LIMITS), "x": has_dtype(DataType.FLOAT)},
)
def split_affine_weights(
    f: NodeBuilder,
    node: ir.Node,
    nodes: Sequence[ir.Node],
    x: Value,
    codes: Value,
    scale: Value,
    zero: Value | None,
    offset: Value | None,
    bias: Value | None,
    order: Sequence[int] | None,
) -> Result:
    """MatMul(x, ((q - zero) * scale)ᵀ) → MatMul(x, DequantizeLinear(q, scale, z)) + MatMul(sums, (z - zero) * scale).

    Legal because z is the same for all elements of a block, and so multiplies the sum of x over the block. z is the
    integer next to zero: ONNX Runtime's kernels are fast only where zeros are integers. For q * scale + offset, zero is
    -offset / scale. The weight (rows, columns) has 4 or 8 bits, and its blocks are parts of its rows, of a multiple of
    16 elements.
    """
    turned = node.inputs[1].producer() if node.op_type == "MatMul" and node.inputs[1] is not None else None
    shape, batch = dims(node.inputs[1] if turned is None else turned.inputs[0]), dims(x)
    if batch is None or shape is None or len(shape) != 2 or (order or (1, 0))[0] != 1 or f.editor.function is not None:
        return None
    weight = _match(nodes, shape, codes, scale, zero if offset is None else offset)
    if isinstance(weight, str):
        return weight
    weight = weight._replace(has_offset=offset is not None)
    inputs = [f.editor.initializer(tensor, f"{codes.name}_{kind}") for kind, tensor in weight.tensors().items()]
    product = f.MatMul(x, f.DequantizeLinear(*inputs[:3], axis=0, block_size=weight.block))
    parts = f.Reshape(x, [*(0 for _ in batch[:-1]), weight.columns // weight.block, weight.block])
    result = f.Add(product, f.MatMul(f.ReduceSum(parts, [-1], keepdims=0), inputs[3]))
    return result if bias is None else f.Add(result, bias)


class _Weight(NamedTuple):
    """A weight (rows, columns) of integers, whose blocks of a row have a scale, and a zero or an offset."""

    codes: ir.TensorProtocol
    scale: Computation
    other: Computation
    rows: int
    columns: int
    block: int
    has_offset: bool = False

    def tensors(self) -> dict[str, ir.TensorProtocol]:
        """Returns the transposed weight, its scales and integer zeros, and what these leave for each block."""
        shape, blocks = (self.columns, self.rows), (self.columns // self.block, self.rows)
        sources = *self.scale.sources, *self.other.sources
        made = {"transposed": computed(self._transposed, self.codes, dtype=self.codes.dtype, shape=shape)}
        for kind, dtype in (("scale", DataType.FLOAT), ("zero", self.codes.dtype), ("rest", DataType.FLOAT)):
            made[kind] = computed(functools.partial(self._of_blocks, kind), *sources, dtype=dtype, shape=blocks)
        return made

    def _transposed(self, codes: torch.Tensor) -> torch.Tensor:
        return codes.reshape(self.rows, self.columns).t()

    def _of_blocks(self, kind: str, *tensors: torch.Tensor) -> torch.Tensor:
        """Returns the scales, integer zeros or rests, (blocks, rows)."""
        count, blocks = len(self.scale.sources), self.columns // self.block

        def spread(values: torch.Tensor) -> torch.Tensor:
            """Returns the values of the groups for each block, of which a group has one or more."""
            return values.reshape(-1, 1).expand(-1, self.rows * blocks // values.numel()).reshape(self.rows, blocks).t()

        scale, other = spread(self.scale(*tensors[:count])), spread(self.other(*tensors[count:]))
        low, high = _LIMITS[self.codes.dtype]
        zero = (-other / scale).nan_to_num(0, high, low) if self.has_offset else other  # 0 / 0 has any zero
        integer = zero.round().clamp(low, high)
        if kind == "zero":
            return integer.to(torch.int8 if low else torch.uint8)
        rest = other + integer * scale if self.has_offset else (integer - other) * scale
        return (scale if kind == "scale" else rest).contiguous()


def _match(
    nodes: Sequence[ir.Node], shape: Sequence[int | str], codes: Value, scale: Value, other: Value | None
) -> _Weight | str:
    """Returns the weight, or why it has another form. ``other`` is the zero or the offset."""
    rows, columns = shape
    data, scales, others = initializer_tensor(codes), computation(scale), computation(other)
    cast = next(step for step in nodes if step.op_type == "Cast")
    reader = next(step for step in nodes if cast.outputs[0] in step.inputs)
    numbers = computation(cast.outputs[0] if reader.op_type != "Reshape" else reader.outputs[0])
    if data is None or numbers is None or scales is None or others is None:
        return "the weight or its scales depend on inputs"
    sizes = tuple(numbers.result().shape)
    for result in (scales.result(), others.result()):
        if (*[1] * (len(sizes) - result.dim()), *result.shape) != (*sizes[:-1], 1):
            return f"parameters of the shape {tuple(result.shape)} are not one for each row of {sizes}"
    block = min(sizes[-1] & -sizes[-1], _LARGEST_BLOCK)
    if not isinstance(rows, int) or not isinstance(columns, int) or block < _SMALLEST_BLOCK or columns % sizes[-1]:
        return f"groups of {sizes[-1]} elements are no blocks of rows with {columns}"
    return _Weight(data, scales, others, rows, columns, block)
