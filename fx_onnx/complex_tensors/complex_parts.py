"""Operators that act on the real part and on the imaginary part separately: they move elements, or are linear."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions._torch_private import schema_argument_names, schema_name
from fx_onnx.decompositions.registry import Complex

# Operators by name, with all their overloads.
_MOVING = """
    view view_copy _unsafe_view reshape reshape_as view_as flatten unflatten ravel squeeze squeeze_copy unsqueeze
    unsqueeze_copy transpose transpose_copy permute permute_copy t t_copy numpy_T mT swapaxes swapdims movedim moveaxis
    expand expand_as expand_copy broadcast_to broadcast_tensors repeat tile slice slice_copy select select_copy narrow
    narrow_copy split split_copy split_with_sizes split_with_sizes_copy chunk unsafe_chunk unsafe_split
    unsafe_split_with_sizes tensor_split hsplit vsplit dsplit unbind unbind_copy unfold unfold_copy
    diagonal diagonal_copy linalg_diagonal diag diag_embed diagflat trace flip fliplr flipud roll rot90
    cat concat concatenate stack hstack vstack dstack column_stack row_stack block_diag meshgrid index index_select
    gather take take_along_dim _unsafe_index _unsafe_masked_index _unsafe_masked_index_put_accumulate where clone
    contiguous alias alias_copy detach lift_fresh lift_fresh_copy positive resolve_conj resolve_neg dropout
    feature_dropout alpha_dropout atleast_1d atleast_2d atleast_3d cartesian_prod combinations masked_fill
    index_fill index_copy index_put _unsafe_index_put put scatter slice_scatter select_scatter diagonal_scatter
    as_strided_scatter masked_scatter fill zero tril triu constant_pad_nd pad pixel_shuffle pixel_unshuffle
    channel_shuffle im2col col2im reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d nan_to_num _reshape_alias
    fft_fftshift fft_ifftshift sum_to_size repeat_interleave
"""
_LINEAR = "neg negative sum mean cumsum diff scatter_add index_add nansum avg_pool1d avg_pool2d avg_pool3d"
BY_PARTS = frozenset((_MOVING + _LINEAR).split())

# Parameters that select positions or amounts: the calls for both parts receive them unchanged.
SELECTORS = frozenset([
    "index", "indices", "mask", "condition", "repeats", "tensor_indices_or_sections", "diagonal", "alpha", "p",
    "start", "end", "step", "prepend_n",
])  # fmt: skip
# Operators that create a complex tensor without a complex input. If an argument is a number, it fills the tensor.
CREATING = frozenset([
    "zeros", "ones", "full", "empty", "empty_strided", "zeros_like", "ones_like", "full_like", "empty_like",
    "new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided", "eye", "scalar_tensor",
])  # fmt: skip
NUMBERS = frozenset(("value", "fill_value", "fill", "s"))
# Parameters that may be a number instead of a tensor, as in ``where``.
OPERANDS = NUMBERS | {"self", "other"}


def name_of(target: Any) -> str:
    """Returns the name of an ATen operator without its overload; "" for anything else."""
    name = schema_name(target)
    return name.removeprefix("aten::") if name.startswith("aten::") else ""


def in_dtype(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the tensor in a dtype, without a call of ``to`` if it has that dtype: the call would be traced."""
    return value if value.dtype == dtype else value.to(dtype)


def _part(value: Any, name: str, imaginary: bool, dtype: torch.dtype) -> Any:
    """Returns the argument for the call that computes one of the parts."""
    if isinstance(value, Complex):
        return value.imag if imaginary else value.real
    if isinstance(value, torch.dtype):
        return dtype if value.is_complex else value
    if isinstance(value, (list, tuple)):
        return type(value)(_part(item, name, imaginary, dtype) for item in value)
    if name in SELECTORS:
        return value
    if isinstance(value, Tensor):
        return torch.zeros_like(value, dtype=dtype) if imaginary else in_dtype(value, dtype)
    if name in OPERANDS and isinstance(value, (int, float, complex)):
        return complex(value).imag if imaginary else complex(value).real
    return value


def by_parts(target: Any, dtype: torch.dtype) -> Callable[..., Any]:
    """Returns the function that applies ``target`` to the real and to the imaginary parts of its arguments.

    Args:
        target: an overload of an operator in ``BY_PARTS`` or ``CREATING``.
        dtype: the dtype of the parts of the result.
    """
    names = schema_argument_names(target)

    def call(*args: Any, **kwargs: Any) -> Any:
        def part(imaginary: bool) -> Any:
            own = [_part(value, name, imaginary, dtype) for name, value in zip(names, args, strict=False)]
            return target(*own, **{name: _part(value, name, imaginary, dtype) for name, value in kwargs.items()})

        real = part(False)
        if name_of(target) in CREATING and name_of(target) != "full_like":
            number = next((v for n, v in [*zip(names, args, strict=False), *kwargs.items()] if n in NUMBERS), 0)
            imag = complex(number).imag if isinstance(number, (int, float, complex)) else 0.0
            return Complex(real, torch.full_like(real, imag))
        imag = part(True)
        if isinstance(real, Tensor):
            return Complex(real, imag)
        return [Complex(*both) for both in zip(real, imag, strict=True)]

    return call
