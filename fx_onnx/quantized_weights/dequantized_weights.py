"""Quantized weights that the model dequantizes or unpacks itself become operands of DequantizeLinear."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.dtypes import is_float8, is_unsigned
from fx_onnx.onnx_model.weights import as_torch, computed, has_data
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import (
    attribute,
    chain,
    constant_number,
    dims,
    initializer_tensor,
    producer_of,
)
from fx_onnx.passes.rules import Result, rule
from fx_onnx.quantized_weights.constant_computations import Computation, computation
from fx_onnx.torch_internals.torch_private import unset_fake_temporarily

__all__ = ["fuse_dequantize_linear", "fuse_unpacked_weights", "gather_quantized_rows"]


@rule(
    "weight.scale * Cast(weight.w, to=1)",
    "weight.scale * MatMul(x, Cast(weight.w, to=1))",
    "weight.scale * Gemm(x, Cast(weight.w, to=1), alpha=1.0, transA=0, transB=is_turned)",
)
def fuse_dequantize_linear(
    f: NodeBuilder,
    node: ir.Node,
    nodes: Sequence[ir.Node],
    scale: Value,
    w: Value,
    x: Value | None,
    is_turned: int | None,
) -> Result:
    """Cast(w) * s → DequantizeLinear(w, s); MatMul(x, Cast(w)) * s → MatMul(x, DequantizeLinear(w, s)), also for Gemm.

    Legal where w is an 8-bit weight and s, a float32 weight, has one element, or one for each index of one axis of w
    (for each output column in a product). Scaling before a product instead of after it changes only the rounding. No
    other node may read an intermediate result.
    """
    data, factors, product = initializer_tensor(w), initializer_tensor(scale), nodes[1]
    if data is None or factors is None or factors.dtype != DataType.FLOAT or f.editor.function is not None:
        return None
    if not (is_float8(data.dtype) or data.dtype in (DataType.INT8, DataType.UINT8)):
        return None
    sizes, scales, result = data.shape.numpy(), factors.shape.numpy(), dims(node.outputs[0])
    if x is None:
        if result != sizes:
            return "the scale widens the weight"
        along = [axis for axis, size in enumerate(scales, len(sizes) - len(scales)) if size != 1]
        if len(along) > 1:
            return f"the scale, of shape {scales}, varies along more than one axis"
        axis = along[0] if along else None
        return f.DequantizeLinear(w, _scale_vector(scale, axis, f.editor), axis=axis)
    if len(sizes) != 2:
        return "the weight is not a matrix"
    axis = 0 if is_turned else 1
    is_for_columns = math.prod(scales[:-1]) == 1 and scales[-1:] in ((), (1,), (sizes[axis],))
    if result is None or result != dims(product.outputs[0]) or not is_for_columns:
        return f"the scale, of shape {scales}, is not one for each column"
    axis = axis if math.prod(scales) != 1 else None
    made = f.DequantizeLinear(w, _scale_vector(scale, axis, f.editor), axis=axis)
    return f.emit(product.op_type, [x, made], product.attributes)[0]


def _scale_vector(scale: Value, axis: int | None, editor: Editor) -> Value:
    """Returns the scale in the shape that DequantizeLinear takes: a scalar, or a vector along ``axis``."""
    data = initializer_tensor(scale)
    sizes = scale.shape.numpy() if scale.shape is not None else ()
    wanted = () if axis is None else (math.prod(sizes),)
    if data is None or sizes == wanted:
        return scale
    vector = computed(lambda values: values.reshape(wanted), data, dtype=data.dtype, shape=wanted)
    return editor.initializer(vector, f"{scale.name}_vector")


_ROWS = "DequantizeLinear(weight.weight, scale, zero | None, axis=along, block_size=given)"


@rule(f"Gather(~({_ROWS} | Reshape({_ROWS}, _)), indices, axis=axis)")
def gather_quantized_rows(
    f: NodeBuilder,
    node: ir.Node,
    nodes: Sequence[ir.Node],
    weight: Value,
    scale: Value,
    zero: Value | None,
    indices: Value,
    along: int,
    given: int,
    axis: int,
) -> Result:
    """Gather(DequantizeLinear(w, scale, zero), i) → (Gather(w, i) - Gather(zero, i)) * Gather(scale, i).

    Legal because DequantizeLinear computes each element in this way from its own weight, scale and zero. The weight is
    a matrix of 8 bits, with a float32 scale for each row or for each block of a row. Otherwise each run would
    dequantize all rows of an embedding. A weight of 4 bits is left as it is, because Gather does not take it.
    """
    shape, scales, batch = dims(node.inputs[0]), dims(scale), dims(indices)
    if batch is None or not shape or not scales or f.editor.function is not None:
        return None
    if any(operand is not None and initializer_tensor(operand) is None for operand in (weight, scale, zero)):
        return None
    if weight.dtype not in (DataType.INT8, DataType.UINT8) or scale.dtype != DataType.FLOAT:
        return None
    block = _block_size(shape, dims(weight) or (), scales, along % 2, given if len(nodes) == 2 else None)
    if not block:
        return None
    if axis not in (0, -2):
        return "it gathers columns"
    rows, blocks = shape[0], int(shape[1]) // block

    def gathered(value: Value, size: int) -> Value:
        """Returns the gathered rows, each of (blocks, size), or (size) if there is one block."""
        sizes = (rows, *([blocks] if blocks > 1 else []), size)
        return f.Gather(value if dims(value) == sizes else f.Reshape(value, sizes), indices, axis=0)

    floats = f.Cast(gathered(weight, block), to=DataType.FLOAT)
    if zero is not None:
        floats = f.Sub(floats, f.Cast(gathered(zero, 1), to=DataType.FLOAT))
    product = f.Mul(floats, gathered(scale, 1))
    return product if blocks == 1 else f.Reshape(product, [*(0 for _ in batch), shape[1]])  # 0 keeps the size of a dim


def _block_size(
    shape: Sequence[int | str], sizes: Sequence[int | str], scales: Sequence[int | str], axis: int, given: int | None
) -> int:
    """Returns how many columns of a row of the matrix share a scale; 0 if the weight has another form.

    Below opset 21, the blocks may be rows of a taller matrix, which a Reshape lays side by side.

    Args:
        shape: the shape of the matrix.
        sizes: the shape of the quantized weight.
        scales: the shape of the scales.
        axis: the axis of the weight along which the scales vary.
        given: the size of the blocks, 0 if there are none; None if the matrix comes from a Reshape.
    """
    if len(shape) != 2 or len(sizes) != 2:
        return 0
    columns = int(shape[1])
    if len(scales) == 2:
        block = columns // (int(scales[1]) or 1)
        return block if axis == 1 and block == given and not columns % block else 0
    block = int(sizes[1])
    return block if len(scales) == 1 and axis == 0 and block > 0 and columns % block == 0 else 0


_BITS = {15: (4, DataType.UINT4), 255: (8, DataType.UINT8)}
# Operators that move elements keep their range, and so do Casts, except one from 8 bits without a sign to INT8.
_MOVES = ("Reshape", "Gather", "Transpose", "Cast")


@rule("MatMul(x, scale * Cast(quantized - zero))", since=21)
def fuse_unpacked_weights(
    f: NodeBuilder, nodes: Sequence[ir.Node], x: Value, scale: Value, quantized: Value, zero: Value
) -> Result:
    """MatMul(x, scale * Cast(q - zero)) → MatMul(x, DequantizeLinear(q, scale, zero)), q a weight of 4 or 8 bits.

    Legal where q is computed from weights and ends with a BitwiseAnd with 15 or 255, and scale and zero are repeated
    for groups of rows of equal size. Rows may be in any order, as in GPTQ's ``g_idx``: then the rows of q and the last
    axis of x are sorted by group. q is computed when it is saved. The zeros and the groups are read here, because a
    zero that does not fit into the bits of q needs the arithmetic. Weights that replace these later are checked.
    """
    if f.editor.function is not None:
        return None
    weight = _match(scale, quantized, zero, nodes[-1].outputs[0].dtype)
    if isinstance(weight, str):
        return weight
    name = max(weight.data.sources, key=lambda tensor: tensor.nbytes).name
    rows, bits = functools.partial(_rows, weight), weight.dtype.bitwidth
    zeros, sizes = weight.groups.rows, weight.scale.shape.numpy()
    tensors = {
        "unpacked": computed(rows, *weight.data.sources, *weight.groups.stored, dtype=weight.dtype, shape=weight.shape),
        "scales": weight.scale,
        "zeros": computed(functools.partial(_integers, zeros, bits), *zeros.sources, dtype=weight.dtype, shape=sizes),
    }
    inputs = [f.editor.initializer(tensor, f"{name}_{kind}") for kind, tensor in tensors.items()]
    made = f.DequantizeLinear(*inputs, axis=0, block_size=weight.block)
    return f.MatMul(x if weight.order is None else f.Gather(x, weight.order, axis=-1), made)


class _Unpacked(NamedTuple):
    """A quantized weight (rows, columns) with scales and zeros (groups, columns); ``order`` sorts rows by group."""

    data: Computation
    scale: ir.TensorProtocol
    groups: _Groups
    order: npt.NDArray[np.int64] | None
    block: int
    dtype: DataType
    shape: tuple[int, int]


def _match(scale: Value, quantized: Value, zero: Value, dtype: DataType | None) -> _Unpacked | str:
    """Returns the parts of a weight, or why it cannot be a DequantizeLinear. ``dtype`` is that of the difference."""
    sizes, bits = dims(quantized), _BITS.get(_mask(quantized))
    if bits is None or sizes is None or len(sizes) != 2 or dtype is None:
        return "no BitwiseAnd with 15 or 255 computes a matrix"
    if is_unsigned(dtype) or dtype.bitwidth <= bits[0]:
        return "the difference of weight and zero may not fit into its dtype"
    data, groups = computation(quantized), _match_groups(zero)
    if data is None or groups is None or len(groups.members) != sizes[0]:
        return "the weight or its zeros depend on inputs or on unknown operators"
    counts = np.bincount(groups.members)
    if (counts != counts[0]).any():
        return "the groups have different sizes"
    shape = len(counts), int(sizes[1])
    scales = _scales(scale, groups, shape)
    if scales is None:
        return "the scales do not have the groups of the zeros"
    with torch.no_grad(), unset_fake_temporarily():
        zeros = groups.rows(*map(as_torch, groups.rows.sources))
    if zeros.shape != shape or not _fits(zeros, bits[0]):
        return "a zero does not fit into the bits of the weight"
    order = None if (np.diff(groups.members) >= 0).all() else np.argsort(groups.members, kind="stable")
    return _Unpacked(data, scales, groups, order, int(counts[0]), bits[1], (int(sizes[0]), int(sizes[1])))


def _fits(values: torch.Tensor, bits: int) -> bool:
    # as Python's integers, because torch would convert the limit to the dtype of the values
    return int(values.min()) >= 0 and int(values.max()) < 2**bits


def _mask(value: Value | None) -> Any:
    """Returns the largest element that a value may have, from the constant of a BitwiseAnd; None if it is unknown."""
    narrow = False
    while (node := producer_of(value, *_MOVES)) is not None:
        narrow = narrow or (node.op_type == "Cast" and DataType(attribute(node, "to")) == DataType.INT8)
        value = node.inputs[0]
    masked = producer_of(value, "BitwiseAnd")
    numbers = [constant_number(x) for x in masked.inputs] if masked is not None else []
    largest = next((number for number in numbers if number is not None), None)
    return None if narrow and largest != 15 else largest


class _Groups(NamedTuple):
    """A matrix whose rows are repeated: one row for each group, the group of each row, and where that is stored."""

    rows: Computation
    members: npt.NDArray[np.int64]
    stored: tuple[ir.TensorProtocol, ...] = ()


def _match_groups(value: Value | None) -> _Groups | None:
    """Returns the groups of a matrix, which Gather repeats, or Expand and Reshape."""
    sizes = dims(value)
    gather, repeated = producer_of(value, "Gather"), chain(value, "Reshape", "Expand")
    if gather is not None and attribute(gather, "axis", 0) == 0:
        rows, index = computation(gather.inputs[0]), initializer_tensor(gather.inputs[1])
        places = as_torch(index).numpy() if index is not None and has_data(index) else np.array(0)
        if rows is None or index is None or places.ndim != 1 or not len(places) or places.min() < 0:
            return None
        return _Groups(rows, places, (index,))
    if repeated is None or sizes is None or len(sizes) != 2:
        return None
    before, after = dims(repeated[1].inputs[0]), dims(repeated[1].outputs[0])
    rows = computation(repeated[1].inputs[0])
    if rows is None or before is None or after is None or len(after) != 3 or before != (after[0], 1, sizes[1]):
        return None
    if not isinstance(sizes[0], int) or not isinstance(after[1], int) or after[2] != sizes[1]:
        return None
    last = len(rows.sources) + len(rows.steps) - 1
    flat = Computation(rows.sources, (*rows.steps, (lambda matrices: matrices.squeeze(1), (last,))))
    return _Groups(flat, np.arange(sizes[0]) // after[1])


def _scales(scale: Value | None, groups: _Groups, sizes: tuple[int, int]) -> ir.TensorProtocol | None:
    """Returns the scales of the groups, if these are the groups of the scales too. ``sizes`` is their shape."""
    dtype = scale.dtype if scale is not None else None
    repeated, whole = _match_groups(scale), initializer_tensor(scale)
    if dtype is None:
        return None
    if repeated is not None and np.array_equal(repeated.members, groups.members):
        return computed(repeated.rows, *repeated.rows.sources, dtype=dtype, shape=sizes)
    if whole is None or not has_data(whole) or dims(scale) != (len(groups.members), sizes[1]):
        return None
    if _row_of_each_group(as_torch(whole), groups.members) is None:  # an earlier pass may have repeated the rows
        return None
    return computed(functools.partial(_known_scales, groups.members), whole, dtype=dtype, shape=sizes)


def _row_of_each_group(values: torch.Tensor, members: npt.NDArray[np.int64]) -> torch.Tensor | None:
    """Returns the first row of each group; None if the rows of a group differ."""
    rows = values[torch.from_numpy(np.unique(members, return_index=True)[1])]
    return rows if torch.equal(rows[torch.from_numpy(members)], values) else None


def _known_scales(members: npt.NDArray[np.int64], values: torch.Tensor) -> torch.Tensor:
    rows = _row_of_each_group(values, members)
    if rows is None:  # scales that replace those of the export
        raise _refused("The scales of a packed weight are not those of the groups that were exported.")
    return rows


def _rows(weight: _Unpacked, *tensors: torch.Tensor) -> torch.Tensor:
    """Computes the integers of a weight, sorted by group. The tensor after the sources is the group of each row."""
    count = len(weight.data.sources)
    for index in tensors[count:]:
        if not np.array_equal(index.numpy(), weight.groups.members):  # groups that replace those of the export
            raise _refused("The groups of a packed weight (g_idx of GPTQ) are not those that were exported.")
    values = _integers(weight.data, weight.dtype.bitwidth, *tensors[:count])
    return values if weight.order is None else values[torch.from_numpy(weight.order)]


def _integers(weight: Computation, bits: int, *tensors: torch.Tensor) -> torch.Tensor:
    """Computes unsigned integers of 8 bits, which fit into fewer bits."""
    values = weight(*tensors)
    if values.numel() and not _fits(values, bits):  # zeros that replace those of the export
        raise _refused(f"A zero point of a packed weight does not fit into {bits} bits.")
    return values.to(torch.uint8)


def _refused(message: str) -> OnnxExporterError:
    return OnnxExporterError(f"{message[:-1]}; export the model with the new weights.", id=MessageId.REPLACED_WEIGHT)
