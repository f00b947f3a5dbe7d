"""The correspondence of torch dtypes and ONNX element types, and the categories of element types."""

from collections.abc import Iterator

import onnx_ir as ir
import torch
from onnx_ir import DataType, tensor_adapters

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_differences import has

__all__ = [
    "DataType",
    "is_complex",
    "is_float",
    "is_float8",
    "is_integer",
    "is_packed",
    "is_signed",
    "is_sub_byte",
    "is_unsigned",
    "onnx_dtype",
    "overflows",
    "since_opset",
    "storage_dtype",
    "torch_dtype",
    "unpacked",
    "value_dtype",
    "wrapped",
]


def _pairs() -> Iterator[tuple[torch.dtype, DataType]]:
    for element_type in DataType:
        if element_type in (DataType.INT2, DataType.UINT2):  # torch has these names but no operations on them
            continue
        try:
            yield tensor_adapters.to_torch_dtype(element_type), element_type
        except (TypeError, ValueError):  # torch has no such dtype: strings, 4-bit and 6-bit floats
            continue


_TO_ONNX: dict[torch.dtype, DataType] = dict(_pairs())
_TO_TORCH: dict[DataType, torch.dtype] = {onnx: torch for torch, onnx in _TO_ONNX.items()}

_FLOAT8 = frozenset(kind for kind in DataType if kind.name.startswith("FLOAT8"))
_FLOATS = frozenset(kind for kind in DataType if "FLOAT" in kind.name or kind is DataType.DOUBLE)
_SIGNED_INTEGERS = frozenset(kind for kind in DataType if kind.name.startswith("INT"))
_UNSIGNED_INTEGERS = frozenset(kind for kind in DataType if kind.name.startswith("UINT"))
_COMPLEX = frozenset({DataType.COMPLEX64, DataType.COMPLEX128})
_SUB_BYTE = frozenset({DataType.INT4, DataType.UINT4, DataType.INT2, DataType.UINT2, DataType.FLOAT4E2M1})
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
    """Returns the ONNX element type of a torch dtype. Packed 4-bit floats are their bytes, as torch computes on them.

    Raises:
        ArgumentError: ONNX has no such element type (quantized dtypes, complex32), or torch cannot create tensors of
            the dtype (int4).
    """
    element_type = DataType.UINT8 if is_packed(dtype) else _TO_ONNX.get(dtype)
    if element_type is None:
        raise ArgumentError(
            f"ONNX has no element type for {dtype}; cast such tensors to one of {_names(_TO_ONNX)}.", id=MessageId.DTYPE
        )
    return element_type


def is_packed(dtype: torch.dtype) -> bool:
    """Returns whether each element holds two numbers; torch copies such elements but cannot compare them."""
    return "_x2" in str(dtype)


def unpacked(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bytes of a tensor of packed 4-bit floats; another one as it is."""
    return tensor.detach().view(torch.uint8) if is_packed(tensor.dtype) else tensor


def torch_dtype(dtype: DataType) -> torch.dtype:
    """Returns the torch dtype of an ONNX element type.

    Raises:
        ArgumentError: torch has no such dtype (strings, 4-bit and 6-bit numbers).
    """
    torch_type = _TO_TORCH.get(dtype)
    if torch_type is None:
        raise ArgumentError(f"torch has no dtype for the ONNX element type {dtype.name}.", id=MessageId.DTYPE)
    return torch_type


def is_float(dtype: DataType) -> bool:
    """Returns whether the type is a real floating-point type, from 4 to 64 bits, including bfloat16 and float8."""
    return dtype in _FLOATS


def is_float8(dtype: DataType) -> bool:
    """Returns whether the type is an 8-bit float; ONNX only casts these and has no arithmetic for them."""
    return dtype in _FLOAT8


def is_complex(dtype: DataType) -> bool:
    """Returns whether the type is one of ONNX's two complex types, which almost no ONNX operator accepts."""
    return dtype in _COMPLEX


def is_integer(dtype: DataType) -> bool:
    """Returns whether the type is an integer type, signed or unsigned; BOOL is not an integer type in ONNX."""
    return dtype in _SIGNED_INTEGERS or dtype in _UNSIGNED_INTEGERS


def is_signed(dtype: DataType) -> bool:
    """Returns whether the type represents negative numbers: signed integers, floats and complex numbers."""
    return dtype in _SIGNED_INTEGERS or dtype in _FLOATS or dtype in _COMPLEX


def is_unsigned(dtype: DataType) -> bool:
    """Returns whether the type is an unsigned integer type."""
    return dtype in _UNSIGNED_INTEGERS


def is_sub_byte(dtype: DataType) -> bool:
    """Returns whether the type has 2 or 4 bits, so that ONNX packs its elements into bytes."""
    return dtype in _SUB_BYTE


def wrapped(number: int, dtype: DataType) -> int:
    """Returns an integer wrapped into the range of an integer dtype, as torch wraps it."""
    bits = dtype.bitwidth
    low = 0 if is_unsigned(dtype) else -(1 << (bits - 1))
    return (number - low) % (1 << bits) + low


def storage_dtype(dtype: DataType) -> torch.dtype:
    """Returns the torch dtype that holds the values, or the codes of 4-bit floats.

    It is int8 or uint8 for types of 2 or 4 bits, else the same dtype.

    Raises:
        ArgumentError: torch has no such dtype (strings, 6-bit floats).
    """
    if dtype in _SUB_BYTE:
        return torch.int8 if dtype in _SIGNED_INTEGERS else torch.uint8
    return torch_dtype(dtype)


def overflows(dtype: DataType) -> bool:
    """Returns whether torch's cast to an 8-bit float turns numbers that are too large into infinity or NaN.

    ONNX's Cast turns them into the largest finite number unless its attribute ``saturate`` is 0.
    """
    return dtype in _FLOAT8 and (dtype is not DataType.FLOAT8E4M3FN or has("float8_e4m3fn overflows"))


def since_opset(dtype: DataType) -> int:
    """Returns the first opset whose operators accept the element type."""
    return _SINCE.get(dtype, 1)


def _names(dtypes: dict[torch.dtype, ir.DataType]) -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


def value_dtype(value: ir.Value) -> DataType:
    """Returns the dtype of a value, which every value of a translated graph has.

    Raises:
        LookupError: the dtype is not known.
    """
    if value.dtype is None:
        raise LookupError(f"the dtype of {value.name} is unknown")
    return value.dtype
