"""Fusion of products with quantized weights into ONNX Runtime's MatMulNBits."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import DataType

from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.weights import computed
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.cleanup.stored_weights import transposed
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, initializer_tensor, is_read_by, producer_of, single_use_producer
from fx_onnx.passes.rewriter import Rewrite
from fx_onnx.quantized_weights.constant_computations import computation

__all__ = ["EXACT", "ROUNDED", "FuseMatMulNBits"]

_BITS = {DataType.INT4: 4, DataType.UINT4: 4, DataType.INT8: 8, DataType.UINT8: 8}
_SIGNED = (DataType.INT4, DataType.INT8)
_BLOCKS = (128, 64, 32, 16)
"""The sizes of blocks for a weight whose columns have one scale each, the best first: fewer scales are fewer bytes."""


class FuseMatMulNBits(Rewrite):
    """MatMul(x, DequantizeLinear(w, scale, zero)) → com.microsoft.MatMulNBits(x, w, scale, zero) with w packed.

    Gemm(x, DequantizeLinear(w, scale, zero), b) → MatMulNBits(x, w, scale, zero) + b, without factors.

    Legal because the operator dequantizes blocks of the weight in the same way. The weight has 4 or 8 bits, with a
    scale for each block of the rows, whose size is a power of 2 from 16 on, or for each column. No other node may read
    the dequantized weight. Packing computes the weight's bytes when they are saved; nothing is dequantized. Products of
    one x with weights of equal form, such as queries, keys and values, become one product and a Split of its columns,
    because the operator prepares x once then. In float32, the halves of a weight of 8 bits are two weights of 4 bits.

    Attributes:
        accuracy_level: how exact the products are: 1 computes in float32; 4 rounds x to 8 bits, which is faster.
    """

    name = "fuse_matmul_nbits"
    op_types = ("MatMul", "Gemm")

    def __init__(self, accuracy_level: int = 1) -> None:
        self.accuracy_level = accuracy_level

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses one product, together with those that read the same x."""
        dequantize = single_use_producer(node.inputs[1], "DequantizeLinear")
        if dequantize is None or editor.function is not None:
            return False
        is_gemm = node.op_type == "Gemm"
        if is_gemm and not _is_plain(node):
            return self.declines(node, "it multiplies by a factor, or transposes x")
        weight = _match_weight(dequantize, is_transposed=is_gemm and bool(attribute(node, "transB", 0)))
        if weight is None:
            return self.declines(node, "the weight has no blocks of 4 or 8 bits along its rows, or is no constant")
        if node.inputs[0] is None or node.inputs[0].dtype != weight.scale.dtype or weight.scale.dtype not in _FLOATS:
            return self.declines(node, "the dtype is neither float32 nor float16")
        if producer_of(node.inputs[0], "DequantizeLinear") and is_read_by(node.outputs[0], "QuantizeLinear"):
            return self.declines(node, "it multiplies quantized numbers, for which runtimes have another product")
        if is_gemm:
            self._replace_gemm(node, weight, dequantize, editor)
            return True
        products = _products_of_equal_form(node, weight)
        if len(products) == 1:
            self._replace(node, [weight], [dequantize], editor)
        else:
            self._join(products, editor)
        return True

    def _replace_gemm(self, node: ir.Node, weight: _Weight, dequantize: ir.Node, editor: Editor) -> None:
        """Turns a Gemm into the product, and an Add of its bias."""
        f = NodeBuilder(node, editor, node.outputs[0].dtype)
        (result,) = f.emit("MatMul", [node.inputs[0], dequantize.outputs[0]], {})
        product = result.producer()
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            editor.replace(node, "Add", [result, node.inputs[2]], {})
        else:
            label = node.outputs[0].name
            editor.replace_with_value(node, result)
            result.name = label
        if product is not None:
            self._replace(product, [weight], [dequantize], editor)

    def _replace(self, node: ir.Node, weights: Sequence[_Weight], absorbed: Sequence[ir.Node], editor: Editor) -> None:
        """Turns a MatMul into the product with all columns of the weights."""
        columns = sum(weight.columns for weight in weights)
        in_halves = self.accuracy_level == 1 and weights[0].is_slow
        parts = [weight.half(place) for place in (1, 0) for weight in weights] if in_halves else weights
        attributes = {
            "K": parts[0].rows,
            "N": sum(part.columns for part in parts),
            "bits": parts[0].bits,
            "block_size": parts[0].block,
            "accuracy_level": self.accuracy_level,
        }
        inputs = [node.inputs[0], *_packed_inputs(parts, editor)]
        if not in_halves:
            editor.replace(node, "MatMulNBits", inputs, attributes, absorbed, domain="com.microsoft")
            return
        f = NodeBuilder(node, editor, node.outputs[0].dtype)
        (both,) = f.emit("MatMulNBits", inputs, attributes, domain="com.microsoft")
        batch = dims(node.outputs[0])
        both.shape = None if batch is None else ir.Shape([*batch[:-1], 2 * columns])
        editor.replace(node, "Add", f.emit("Split", [both, [columns] * 2], {"axis": -1}, outputs=2), {}, absorbed)

    def _join(self, products: Mapping[ir.Node, _Weight], editor: Editor) -> None:
        """Replaces products of one x by one product, right behind x, and a Split."""
        first, weights = next(iter(products)), list(products.values())
        x = first.inputs[0]
        f = NodeBuilder(first, editor, first.outputs[0].dtype, after=x)
        (result,) = f.emit("MatMul", [x, first.inputs[1]], {})
        parts = f.emit("Split", [result, [weight.columns for weight in weights]], {"axis": -1}, outputs=len(weights))
        made = [node for node in (result.producer(), parts[0].producer()) if node is not None]
        absorbed = [*products, *(producer_of(node.inputs[1], "DequantizeLinear") for node in products)]
        for new in made:
            for old in absorbed:
                new.metadata_props.update(metadata.merged(new.metadata_props, old.metadata_props if old else {}))
        for part, node in zip(parts, products, strict=True):
            label = node.outputs[0].name
            editor.replace_with_value(node, part)
            part.name = label
        self._replace(made[0], weights, [], editor)


def _products_of_equal_form(node: ir.Node, weight: _Weight) -> dict[ir.Node, _Weight]:
    """Returns the products with the node's x that one operator can compute: the node and others, in order."""
    x = node.inputs[0]
    if x is None or x.graph is not node.graph:
        return {node: weight}
    products = {}
    for use in x.uses():
        dequantize = single_use_producer(use.node.inputs[-1], "DequantizeLinear")
        if use.node.op_type == "MatMul" and use.idx == 0 and use.node.graph is node.graph and dequantize is not None:
            other = _match_weight(dequantize)
            if other is not None and other.form == weight.form:
                products[use.node] = other
    return products


_FLOATS = (DataType.FLOAT, DataType.FLOAT16)


class _Weight(NamedTuple):
    """A quantized weight (rows, columns), with scales and zeros for each block of a column, or for each column."""

    data: ir.TensorProtocol
    scale: ir.TensorProtocol
    zero: ir.TensorProtocol | None
    rows: int
    columns: int
    block: int

    @property
    def bits(self) -> int:
        """The number of bits of an element."""
        return _BITS[self.data.dtype]

    @property
    def is_slow(self) -> bool:
        """Whether ONNX Runtime takes 50 to 130 times as long as for 4 bits, if it computes in float32."""
        return self.bits == 8 and self.scale.dtype == DataType.FLOAT

    @property
    def form(self) -> tuple[object, ...]:
        """What must be equal in weights whose columns one operator takes."""
        return self.rows, self.block, self.bits, self.scale.dtype, self.zero is None

    def half(self, place: int) -> _Weight:
        """Returns the upper (1) or the lower (0) 4 bits of a weight of 8 bits: w - z = 16 (w1 - z1) + (w0 - z0)."""
        offset = 128 if self.data.dtype in _SIGNED else 0

        def taken(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
            take = functools.partial(_half, place, offset)
            return computed(take, tensor, dtype=DataType.UINT4, shape=tensor.shape.numpy(), name=tensor.name)

        scales = functools.partial(torch.mul, other=16.0**place)
        scale = computed(scales, self.scale, dtype=self.scale.dtype, shape=self.scale.shape.numpy())
        zero = (
            ir.tensor(np.zeros(self.scale.shape.numpy(), self.data.dtype.numpy())) if self.zero is None else self.zero
        )
        return self._replace(data=taken(self.data), scale=scale, zero=taken(zero))

    def packed(self) -> list[ir.TensorProtocol]:
        """Returns the inputs of the operator: the weight, its scales and its zeros. The first axis is the columns."""
        blocks = self.rows // self.block
        offset = 2 ** (self.bits - 1) if self.data.dtype in _SIGNED else 0
        shape = (self.columns, blocks, self.block * self.bits // 8)
        weight = functools.partial(_packed_weight, shape, self.bits, offset)
        tensors = [
            computed(weight, self.data, dtype=DataType.UINT8, shape=shape),
            computed(
                functools.partial(_by_column, blocks, self.columns),
                self.scale,
                dtype=self.scale.dtype,
                shape=(self.columns, blocks),
            ),
        ]
        if self.zero is not None:
            sizes = (self.columns, -(-blocks * self.bits // 8))
            zeros = functools.partial(_packed_zeros, blocks, self.columns, self.bits, offset)
            tensors.append(computed(zeros, self.zero, dtype=DataType.UINT8, shape=sizes))
        return tensors


def _half(place: int, offset: int, numbers: torch.Tensor) -> torch.Tensor:
    return ((numbers.to(torch.int16) + offset) >> 4 * place & 15).to(torch.uint8)


def _packed_inputs(weights: Sequence[_Weight], editor: Editor) -> list[ir.Value]:
    """Adds the packed columns of the weights to the graph: the weights, their scales and their zeros."""
    name = f"{weights[0].data.name}{'_joined' if len({weight.data.name for weight in weights}) > 1 else ''}"
    inputs = []
    for kind, parts in zip(
        ("nbits", "scales", "zeros"), zip(*(weight.packed() for weight in weights), strict=True), strict=False
    ):
        sizes = sum(part.shape[0] for part in parts), *parts[0].shape.numpy()[1:]
        tensor = (
            parts[0]
            if len(parts) == 1
            else computed(lambda *tensors: torch.cat(tensors), *parts, dtype=parts[0].dtype, shape=sizes)
        )
        inputs.append(editor.initializer(tensor, f"{name}_{kind}"))
    return inputs


def _is_plain(gemm: ir.Node) -> bool:
    return not attribute(gemm, "transA", 0) and attribute(gemm, "alpha", 1.0) == attribute(gemm, "beta", 1.0) == 1.0


def _match_weight(dequantize: ir.Node, *, is_transposed: bool = False) -> _Weight | None:
    """Returns the weight of a DequantizeLinear, or its transpose, if the operator has the layout."""
    data, scale, *zeros = map(_tensor, dequantize.inputs)
    sizes = dims(dequantize.inputs[0])
    if is_transposed and sizes is not None and len(sizes) == 2:
        data, scale, *zeros = (None if value is None else _transposed(value) for value in (data, scale, *zeros))
        sizes = sizes[::-1]
    if data is None or scale is None or data.dtype not in _BITS or sizes is None or len(sizes) != 2:
        return None
    has_zero = len(dequantize.inputs) > 2 and dequantize.inputs[2] is not None
    zero = zeros[0] if has_zero else None
    rows, columns = sizes
    if not isinstance(rows, int) or not isinstance(columns, int) or (has_zero and zero is None):
        return None
    if zero is None and data.dtype not in _SIGNED:  # without an input, the operator's zero is the middle of the range
        return None
    block, axis = attribute(dequantize, "block_size", 0), (attribute(dequantize, "axis", 1) + is_transposed) % 2
    if block:
        fits = axis == 0 and block >= 16 and block & (block - 1) == 0 and rows % block == 0
        return _Weight(data, scale, zero, rows, columns, block) if fits else None
    block = next((size for size in _BLOCKS if rows % size == 0), 0)
    if not block or tuple(scale.shape.numpy()) not in ((), (columns,)) or (axis == 0 and len(scale.shape)):
        return None
    return _Weight(data, scale, zero, rows, columns, block)


def _tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Returns the tensor of a weight, or of scales that are computed from weights; None for another value."""
    if value is None or value.producer() is None or value.dtype not in _FLOATS:
        return initializer_tensor(value)
    scales = computation(value)
    return None if scales is None else scales.tensor(value.dtype)


def _transposed(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Returns the transposed view of a matrix, by its name; a scale for each column or for all stays as it is."""
    view = transposed(tensor, [1, 0]) if len(tensor.shape) == 2 else tensor
    view.name = tensor.name
    return view


def _by_column(blocks: int, columns: int, values: torch.Tensor) -> torch.Tensor:
    """Returns values for each block, (blocks, columns), or for each column, as (columns, blocks)."""
    return values.expand(blocks, columns).t().contiguous()


def _packed_weight(shape: tuple[int, int, int], bits: int, offset: int, weight: torch.Tensor) -> torch.Tensor:
    """Packs a weight (rows, columns) along its rows: (columns, blocks, bytes)."""
    shifted = weight.t().to(torch.int16).add_(offset).to(torch.uint8).contiguous()
    return _packed(shifted, bits).reshape(shape)


def _packed_zeros(blocks: int, columns: int, bits: int, offset: int, zeros: torch.Tensor) -> torch.Tensor:
    shifted = _by_column(blocks, columns, zeros).to(torch.int16).add_(offset).to(torch.uint8)
    if bits == 4 and blocks % 2:
        shifted = torch.nn.functional.pad(shifted, (0, 1))
    return _packed(shifted, bits)


def _packed(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Packs the last axis: with 4 bits, the first of two elements becomes the lower half of a byte."""
    return values if bits == 8 else values[..., ::2] | (values[..., 1::2] << 4)


EXACT, ROUNDED = FuseMatMulNBits(), FuseMatMulNBits(accuracy_level=4)
