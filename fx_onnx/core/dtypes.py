"""Which torch dtype is which ONNX element type, and what kind of number each one is."""

from collections.abc import Iterator

import onnx_ir as ir
import torch
from onnx_ir import DataType, tensor_adapters

from fx_onnx.core.errors import ArgumentError

__all__ = [
    "DataType",
    "carrier",
    "is_complex",
    "is_float",
    "is_float8",
    "is_integer",
    "is_signed",
    "is_sub_byte",
    "is_unsigned",
    "onnx_dtype",
    "overflows",
    "since_opset",
    "torch_dtype",
    "wrapped",
]


def _pairs() -> Iterator[tuple[torch.dtype, DataType]]:
    for element_type in DataType:
        if element_type in (DataType.INT2, DataType.UINT2):  # torch only names these: it computes nothing in them
            continue
        try:
            yield tensor_adapters.to_torch_dtype(element_type), element_type
        except (TypeError, ValueError):  # torch has no such dtype: strings, 4 and 6 bits
            continue


_TO_ONNX: dict[torch.dtype, DataType] = dict(_pairs())
_TO_TORCH: dict[DataType, torch.dtype] = {onnx: torch for torch, onnx in _TO_ONNX.items()}

_FLOAT8 = frozenset(kind for kind in DataType if kind.name.startswith("FLOAT8"))
_FLOATS = frozenset(kind for kind in DataType if "FLOAT" in kind.name or kind is DataType.DOUBLE)
_SIGNED_INTEGERS = frozenset(kind for kind in DataType if kind.name.startswith("INT"))
_UNSIGNED_INTEGERS = frozenset(kind for kind in DataType if kind.name.startswith("UINT"))
_COMPLEX = frozenset({DataType.COMPLEX64, DataType.COMPLEX128})
_SUB_BYTE = frozenset({DataType.INT4, DataType.UINT4, DataType.INT2, DataType.UINT2})
_SINCE: dict[DataType, int] = {
    **dict.fromkeys(_FLOAT8, 19),
    DataType.INT4: 21,
    DataType.UINT4: 21,
    DataType.FLOAT4E2M1: 23,
    DataType.FLOAT8E8M0: 24,
    DataType.INT2: 25,
    DataType.UINT2: 25,
}


def onnx_dtype(dtype: torch.dtype) -> DataType:
    """The ONNX element type of a torch dtype.

    Raises:
        ArgumentError: ONNX has no such element type (quantised dtypes, complex32, packed 4-bit floats), or it has one
            (int4), but torch can make no tensors of the dtype.
    """
    found = _TO_ONNX.get(dtype)
    if found is None:
        raise ArgumentError(f"ONNX has no element type for {dtype}; cast such tensors to one of {_names(_TO_ONNX)}.")
    return found


def torch_dtype(dtype: DataType) -> torch.dtype:
    """The torch dtype of an ONNX element type.

    Raises:
        ArgumentError: torch has no such dtype (strings, 4-bit and 6-bit numbers).
    """
    found = _TO_TORCH.get(dtype)
    if found is None:
        raise ArgumentError(f"torch has no dtype for the ONNX element type {dtype.name}.")
    return found


def is_float(dtype: DataType) -> bool:
    """Any real floating-point type, from 4 bits to 64, bfloat16 and float8 among them."""
    return dtype in _FLOATS


def is_float8(dtype: DataType) -> bool:
    """Any of the 8-bit floating-point types; ONNX computes nothing in them, it only casts."""
    return dtype in _FLOAT8


def is_integer(dtype: DataType) -> bool:
    """Any integer type, signed or not; a boolean is not an integer in ONNX."""
    return dtype in _SIGNED_INTEGERS or dtype in _UNSIGNED_INTEGERS


def is_signed(dtype: DataType) -> bool:
    """Whether negative numbers can be represented: signed integers, floats and complex numbers."""
    return dtype in _SIGNED_INTEGERS or dtype in _FLOATS or dtype in _COMPLEX


def is_unsigned(dtype: DataType) -> bool:
    """Whether it is an unsigned integer type."""
    return dtype in _UNSIGNED_INTEGERS


def wrapped(number: int, dtype: DataType) -> int:
    """An integer in the range of its dtype: torch wraps what is beyond it."""
    bits = dtype.bitwidth
    low = 0 if is_unsigned(dtype) else -(1 << (bits - 1))
    return (number - low) % (1 << bits) + low


def is_sub_byte(dtype: DataType) -> bool:
    """Whether it is an integer of 2 or 4 bits, several of which ONNX packs into a byte."""
    return dtype in _SUB_BYTE


def carrier(dtype: DataType) -> torch.dtype:
    """The torch dtype of tensors that hold such numbers: int8 or uint8 for integers of 2 or 4 bits, else its own.

    Raises:
        ArgumentError: torch has none (strings, 4-bit and 6-bit floats).
    """
    if dtype in _SUB_BYTE:
        return torch.int8 if dtype in _SIGNED_INTEGERS else torch.uint8
    return torch_dtype(dtype)


def overflows(dtype: DataType) -> bool:
    """Whether torch casts what is too large for an 8-bit float to infinity or NaN, and not to the largest number.

    ONNX's Cast does the latter unless its attribute ``saturate`` is 0.
    """
    return dtype in _FLOAT8 and dtype is not DataType.FLOAT8E4M3FN


def since_opset(dtype: DataType) -> int:
    """The first opset whose operators know the element type."""
    return _SINCE.get(dtype, 1)


def is_complex(dtype: DataType) -> bool:
    """Whether it is one of ONNX's two complex types, which almost no ONNX operator takes."""
    return dtype in _COMPLEX


def _names(dtypes: dict[torch.dtype, ir.DataType]) -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
