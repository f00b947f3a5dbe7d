"""Matrix products."""

from collections.abc import Sequence
from typing import Any

import torch
from onnx_ir import Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._widening import widened


@translates(aten.linear.default)
def aten_linear(op: Emitter, input: Value, weight: Value, bias: Value | None = None) -> Value:
    """Emits Gemm for two matrices, else MatMul and Add: input @ weightᵀ + bias."""
    if op.rank(input) == 2 and op.rank(weight) == 2 and dtypes.is_float(op.out_dtype):
        return op.Gemm(input, weight, bias, transB=1)
    product = aten_matmul(op, input, op.transpose(weight, [1, 0]) if op.rank(weight) == 2 else weight)
    return product if bias is None else op.Add(product, bias)


@translates(aten.matmul.default, aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)
def aten_matmul(op: Emitter, self: Value, other: Value) -> Value:
    """Emits MatMul; 1-d operands are a row and a column, as in NumPy."""
    inner = op.sizes(self)[-1]
    if isinstance(inner, int) and inner == 0:  # the sums are empty, for which ONNX Runtime returns uninitialized memory
        return op.expand(op.constant(0, op.out_dtype), op.out_sizes)
    return op.cast(_product(op, widened(op, "MatMul", self), widened(op, "MatMul", other)), op.out_dtype)


def _product(op: Emitter, left: Value, right: Value, may_be_empty: bool = False) -> Value:
    """Emits MatMul, of batches with one more axis where the number of rows or columns depends on data.

    ONNX Runtime fuses a Transpose of the first axis with MatMul, and divides by the size of the axis.
    """
    sizes = [op.sizes(operand) for operand in (left, right) if op.rank(operand) > 2]
    may_be_empty |= any(symbolic_sizes.is_from_data(size) for operand in sizes for size in operand[-2:])
    if not (sizes and may_be_empty):
        product: Value = op.MatMul(left, right)
        return product
    batches = [op.unsqueeze(operand, 0) if op.rank(operand) > 2 else operand for operand in (left, right)]
    return op.squeeze(op.MatMul(*batches), 0)


def _is_gemm(self: torch.Tensor, mat1: torch.Tensor, beta: float = 1, alpha: float = 1) -> bool:
    """Returns whether Gemm can express the call.

    Its factors alpha and beta are float32, so products of integers are excluded, and so are factors of float64 products
    that float32 cannot represent. ONNX Runtime ignores beta if the inner size is 0.
    """
    inner = symbolic_sizes.static(mat1.shape[1])
    if not self.dtype.is_floating_point or self.dtype != mat1.dtype or (isinstance(inner, int) and inner == 0):
        return False
    factors = (float(alpha), float(beta))
    return self.dtype != torch.float64 or all(float(torch.tensor(f, dtype=torch.float32)) == f for f in factors)


@translates(aten.addmm.default, supports=_is_gemm)
def aten_addmm(op: Emitter, self: Value, mat1: Value, mat2: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    """Emits Gemm: beta * self + alpha * mat1 @ mat2; if beta is 0, self is left out, because torch ignores its NaN."""
    factors: dict[str, Any] = {name: float(f) for name, f in (("alpha", alpha), ("beta", beta)) if f != 1}
    if beta == 0:
        return op.Gemm(mat1, mat2, **{**factors, "beta": None})
    return op.Gemm(mat1, mat2, self, **factors)


# The dtypes that ONNX Einsum admits and in which torch sums. torch sums narrower integers in int64 in some cases.
_EINSUM_DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64)


def _is_einsum(equation: str, tensors: Sequence[torch.Tensor]) -> bool:
    """Returns whether ONNX Einsum can express the call.

    It does not broadcast a label, does not broadcast ellipses of different ranks, does not admit every dtype, and does
    not promote dtypes. Several tensors with dynamic sizes must be a product of matrices.
    """
    if len({tensor.dtype for tensor in tensors}) > 1:
        return False
    sizes: dict[str, Size] = {}
    ranks: set[int] = set()
    for labels, tensor in zip(equation.replace(" ", "").partition("->")[0].split(","), tensors, strict=True):
        if tensor.dtype not in _EINSUM_DTYPES:
            return False
        before, ellipsis, after = labels.partition("...")
        if ellipsis:
            ranks.add(tensor.dim() - len(before) - len(after))
        rear = tuple(tensor.shape)[tensor.dim() - len(after) :] if after else ()
        for label, size in (*zip(before, tensor.shape, strict=False), *zip(after, rear, strict=True)):
            if not symbolic_sizes.same_size(sizes.setdefault(label, size), size):
                return False
    is_static = all(isinstance(symbolic_sizes.static(size), int) for tensor in tensors for size in tensor.shape)
    is_plain = is_static or len(tensors) == 1
    return len(ranks) < 2 and (is_plain or _groups(_spelled_out(equation, tensors[0].dim())) is not None)


@translates(aten.einsum.default, supports=_is_einsum)
def aten_einsum(op: Emitter, equation: str, tensors: Sequence[Value], *, path: Sequence[int] | None = None) -> Value:
    """Emits Einsum with an explicit output; MatMul for two tensors with dynamic sizes.

    The Einsum of ONNX Runtime ends the process where it transposes an empty tensor.
    """
    if len(tensors) == 1 or all(isinstance(size, int) for tensor in tensors for size in op.sizes(tensor)):
        return op.Einsum(*tensors, equation=_with_explicit_output(equation.replace(" ", "")))
    equation = _spelled_out(equation, op.rank(tensors[0]))
    batch, rows, columns, inner = _groups(equation) or ("",) * 4
    operands, _, output = equation.partition("->")
    left, right = operands.split(",")
    first = op.transpose(tensors[0], [left.index(label) for label in batch + rows + inner])
    second = op.transpose(tensors[1], [right.index(label) for label in batch + inner + columns])
    missing = [*([] if rows else [-2]), *([] if columns else [-1])]  # a label of size 1
    first, second = first if rows else op.unsqueeze(first, -2), second if columns else op.unsqueeze(second, -1)
    product = _product(op, first, second, may_be_empty={left[0], right[0]} != {*batch[:1]})
    return op.transpose(op.squeeze(product, *missing), [(batch + rows + columns).index(label) for label in output])


def _spelled_out(equation: str, rank: int) -> str:
    """Returns the equation with its output, and with Greek labels for an ellipsis, by the rank of the first tensor."""
    equation = _with_explicit_output(equation.replace(" ", ""))
    first = equation.partition("->")[0].partition(",")[0]
    return equation.replace("...", "".join(chr(ord("α") + index) for index in range(rank - len(first) + 3)))


def _groups(equation: str) -> tuple[str, str, str, str] | None:
    """Returns the labels of a product of matrices: of the batch, the rows, the columns and the sums.

    Returns None for other equations. The rows and the columns may be missing.
    """
    operands, _, output = equation.partition("->")
    left, right = operands.split(",") if operands.count(",") == 1 else ("..", "")
    batch = "".join(label for label in left if label in right and label in output)
    inner = "".join(label for label in left if label in right and label not in output)
    rows = "".join(label for label in left if label not in right)
    columns = "".join(label for label in right if label not in left)
    is_product = len(inner) == 1 and len(rows) < 2 and len(columns) < 2 and {*rows, *columns} <= {*output}
    are_unique = len({*left}) == len(left) and len({*right}) == len(right) and "." not in left
    return (batch, rows, columns, inner) if is_product and are_unique else None


def _with_explicit_output(equation: str) -> str:
    """Returns the equation with its output.

    An implicit output has the broadcast axes, then the labels that occur once, in alphabetical order, capitals first.
    """
    if "->" in equation:
        return equation
    labels = equation.replace("...", "").replace(",", "")
    once = "".join(sorted(label for label in set(labels) if labels.count(label) == 1))
    return f"{equation}->{'...' if '...' in equation else ''}{once}"
