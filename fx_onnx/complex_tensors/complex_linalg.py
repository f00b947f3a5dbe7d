"""Decompositions of complex matrix products and convolutions into real ones: four, or two if one operand is real."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_onnx.complex_tensors.complex_numbers import add, as_complex, conjugate, mul
from fx_onnx.complex_tensors.complex_parts import in_dtype
from fx_onnx.decompositions.registry import Complex, Operand, aten, complex_decomposes


def bilinear(function: Callable[..., Tensor], x: Complex | Tensor, y: Complex | Tensor, dtype: torch.dtype) -> Complex:
    """Applies ``function``, which is linear in both arguments, to complex arguments, or to a complex and a real one."""
    if not isinstance(x, Complex):
        x = in_dtype(x, dtype)
        return Complex(function(x, y.real), function(x, y.imag))
    if not isinstance(y, Complex):
        y = in_dtype(y, dtype)
        return Complex(function(x.real, y), function(x.imag, y))
    real = function(x.real, y.real) - function(x.imag, y.imag)
    return Complex(real, function(x.real, y.imag) + function(x.imag, y.real))


def _part_dtype(*operands: Any) -> torch.dtype:
    """Returns the dtype of the parts of the first complex operand."""
    return next(x.real.dtype for x in operands if isinstance(x, Complex))


def _register_bilinear(*targets: Any) -> None:
    """Registers operators of two tensors that are linear in both."""
    for target in targets:

        def call(self: Any, other: Any, target: Any = target) -> Complex:
            return bilinear(target, self, other, _part_dtype(self, other))

        complex_decomposes(target)(call)


_register_bilinear(aten.matmul, aten.mm, aten.bmm, aten.mv, aten.outer, aten.ger, aten.dot, aten.inner, aten.kron)


@complex_decomposes(aten.vdot)
def vdot(self: Complex, other: Complex) -> Complex:
    """Returns the dot product of the conjugate of self and other."""
    return bilinear(torch.dot, conjugate(self), other, self.real.dtype)


@complex_decomposes(aten.linear)
def linear(input: Complex | Tensor, weight: Complex | Tensor, bias: Complex | Tensor | None = None) -> Complex:
    """Returns input @ weightᵀ + bias."""
    product = bilinear(torch.nn.functional.linear, input, weight, _part_dtype(input, weight))
    return product if bias is None else add(product, bias)


def _scaled_sum(self: Operand, product: Complex, beta: complex, alpha: complex) -> Complex:
    """Returns beta * self + alpha * product; a beta of 0 ignores self."""
    product = product if alpha == 1 else mul(product, alpha)
    if beta == 0:
        return product
    return add(self if beta == 1 else mul(self, beta), product)


@complex_decomposes(aten.addmm.default, aten.addmv.default, aten.baddbmm.default)
def addmm(self: Operand, mat1: Any, mat2: Any, *, beta: complex = 1, alpha: complex = 1) -> Complex:
    """Returns beta * self + alpha * mat1 @ mat2."""
    return _scaled_sum(self, bilinear(torch.matmul, mat1, mat2, _part_dtype(mat1, mat2)), beta, alpha)


@complex_decomposes(aten.addbmm.default)
def addbmm(self: Operand, batch1: Any, batch2: Any, *, beta: complex = 1, alpha: complex = 1) -> Complex:
    """Returns beta * self + alpha * Σ batch1 @ batch2."""
    product = bilinear(torch.bmm, batch1, batch2, _part_dtype(batch1, batch2))
    return _scaled_sum(self, Complex(product.real.sum(0), product.imag.sum(0)), beta, alpha)


@complex_decomposes(aten.addr.default)
def addr(self: Operand, vec1: Any, vec2: Any, *, beta: complex = 1, alpha: complex = 1) -> Complex:
    """Returns beta * self + alpha * vec1 ⊗ vec2."""
    return _scaled_sum(self, bilinear(torch.outer, vec1, vec2, _part_dtype(vec1, vec2)), beta, alpha)


def _register_convolutions(*targets: Any) -> None:
    """Registers convolutions, which are bilinear in input and weight, and add a bias for each channel."""
    for target in targets:

        def call(input: Any, weight: Any, bias: Any = None, *args: Any, target: Any = target, **kwargs: Any) -> Complex:
            dtype = _part_dtype(input, weight)
            result = bilinear(lambda x, w: target(x, w, None, *args, **kwargs), input, weight, dtype)
            if bias is None:
                return result
            shift = as_complex(bias, result.real)
            spatial = (weight.real if isinstance(weight, Complex) else weight).dim() - 2
            sizes = (-1, *[1] * spatial)
            return add(result, Complex(shift.real.reshape(sizes), shift.imag.reshape(sizes)))

        complex_decomposes(target)(call)


_register_convolutions(
    aten.conv1d, aten.conv2d, aten.conv3d, aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d,
    aten.convolution,
)  # fmt: skip
