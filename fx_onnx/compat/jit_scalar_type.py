"""``JitScalarType``: TorchScript's numbers and names of dtypes, which symbolic functions use."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import torch
from onnx_ir import DataType

from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError


class _Names(NamedTuple):
    scalar_name: str
    torch_name: str
    dtype: torch.dtype | None
    onnx_type: DataType


class JitScalarType(enum.IntEnum):
    """The scalar types of TorchScript, numbered as in ``c10/core/ScalarType.h``.

    ``JitScalarType(6)`` is FLOAT; a symbolic function receives such numbers for arguments that are dtypes.
    """

    UINT8 = 0
    INT8 = 1
    INT16 = 2
    INT = 3
    INT64 = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    COMPLEX32 = 8
    COMPLEX64 = 9
    COMPLEX128 = 10
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    FLOAT8E5M2 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E5M2FNUZ = 18
    FLOAT8E4M3FNUZ = 19
    UNDEFINED = 20

    @classmethod
    def from_name(cls, name: str | None) -> JitScalarType:
        """Returns the type of a TorchScript name such as ``Long``, or of a C++ name such as ``int64_t``.

        Raises:
            ArgumentError: no type has this name.
        """
        for scalar_type, names in _NAMES.items():
            if name in (names.scalar_name, names.torch_name):
                return scalar_type
        raise ArgumentError(f"TorchScript has no scalar type named {shown(name)}.")

    _from_name = from_name  # the name in torch.onnx

    @classmethod
    def from_dtype(cls, dtype: torch.dtype | None) -> JitScalarType:
        """Returns the type of a torch dtype.

        Raises:
            ArgumentError: TorchScript has no such dtype.
        """
        for scalar_type, names in _NAMES.items():
            if dtype is not None and names.dtype == dtype:
                return scalar_type
        raise ArgumentError(f"TorchScript has no scalar type for the dtype {shown(dtype)}.")

    @classmethod
    def from_onnx_type(cls, onnx_type: int | None) -> JitScalarType:
        """Returns the type of an ONNX element type; never a quantized one.

        Raises:
            ArgumentError: TorchScript has no such element type.
        """
        for scalar_type, names in _NAMES.items():
            if onnx_type is not None and names.onnx_type == int(onnx_type) and not names.scalar_name.startswith("Q"):
                return scalar_type
        raise ArgumentError(f"TorchScript has no scalar type for the ONNX element type {shown(onnx_type)}.")

    @classmethod
    def from_value(cls, value: Any, default: JitScalarType | None = None) -> JitScalarType:
        """Returns the type of the elements of a tensor or of a value of a symbolic function.

        Args:
            value: a tensor or a value.
            default: the result if the dtype of the value is not known, or ``value`` is neither.

        Raises:
            ArgumentError: there is no default.
        """
        dtype = value.dtype if isinstance(value, torch.Tensor) else None
        if hasattr(value, "setType"):
            dtype = value.type().dtype()
        if dtype is not None:
            return cls.from_dtype(dtype)
        if default is None:
            raise ArgumentError(f"The dtype of {shown(value)} is not known, and no default is given.")
        return default

    def scalar_name(self) -> str:
        """Returns TorchScript's name, such as ``Long``."""
        return _NAMES[self].scalar_name

    def torch_name(self) -> str:
        """Returns the C++ name, such as ``int64_t``."""
        return _NAMES[self].torch_name

    def dtype(self) -> torch.dtype:
        """Returns the torch dtype.

        Raises:
            ArgumentError: the type is UNDEFINED.
        """
        dtype = _NAMES[self].dtype
        if dtype is None:
            raise ArgumentError("JitScalarType.UNDEFINED has no dtype.")
        return dtype

    def onnx_type(self) -> DataType:
        """Returns the ONNX element type, an integer; UNDEFINED for a type that ONNX does not have."""
        return _NAMES[self].onnx_type

    def onnx_compatible(self) -> bool:
        """Returns whether ONNX has the element type."""
        return self.onnx_type() != DataType.UNDEFINED


_T = JitScalarType
_NAMES: dict[JitScalarType, _Names] = {
    _T.UINT8: _Names("Byte", "uint8_t", torch.uint8, DataType.UINT8),
    _T.INT8: _Names("Char", "int8_t", torch.int8, DataType.INT8),
    _T.INT16: _Names("Short", "int16_t", torch.int16, DataType.INT16),
    _T.INT: _Names("Int", "int", torch.int32, DataType.INT32),
    _T.INT64: _Names("Long", "int64_t", torch.int64, DataType.INT64),
    _T.HALF: _Names("Half", "half", torch.float16, DataType.FLOAT16),
    _T.FLOAT: _Names("Float", "float", torch.float32, DataType.FLOAT),
    _T.DOUBLE: _Names("Double", "double", torch.float64, DataType.DOUBLE),
    _T.COMPLEX32: _Names("ComplexHalf", "complex32", torch.complex32, DataType.UNDEFINED),
    _T.COMPLEX64: _Names("ComplexFloat", "complex64", torch.complex64, DataType.COMPLEX64),
    _T.COMPLEX128: _Names("ComplexDouble", "complex128", torch.complex128, DataType.COMPLEX128),
    _T.BOOL: _Names("Bool", "bool", torch.bool, DataType.BOOL),
    _T.QINT8: _Names("QInt8", "qint8", torch.qint8, DataType.INT8),
    _T.QUINT8: _Names("QUInt8", "quint8", torch.quint8, DataType.UINT8),
    _T.QINT32: _Names("QInt32", "qint32", torch.qint32, DataType.INT32),
    _T.BFLOAT16: _Names("BFloat16", "bfloat16", torch.bfloat16, DataType.BFLOAT16),
    _T.FLOAT8E5M2: _Names("Float8E5M2", "float8_e5m2", torch.float8_e5m2, DataType.FLOAT8E5M2),
    _T.FLOAT8E4M3FN: _Names("Float8E4M3FN", "float8_e4m3fn", torch.float8_e4m3fn, DataType.FLOAT8E4M3FN),
    _T.FLOAT8E5M2FNUZ: _Names("Float8E5M2FNUZ", "float8_e5m2fnuz", torch.float8_e5m2fnuz, DataType.FLOAT8E5M2FNUZ),
    _T.FLOAT8E4M3FNUZ: _Names("Float8E4M3FNUZ", "float8_e4m3fnuz", torch.float8_e4m3fnuz, DataType.FLOAT8E4M3FNUZ),
    _T.UNDEFINED: _Names("Undefined", "undefined", None, DataType.UNDEFINED),
}
