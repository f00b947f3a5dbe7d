"""Every torch dtype and its ONNX element type, both ways, and the predicates."""

import pytest
import torch
from onnx_ir import DataType

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.onnx_model import dtypes

PAIRS = [
    (torch.bool, DataType.BOOL),
    (torch.uint8, DataType.UINT8),
    (torch.uint16, DataType.UINT16),
    (torch.uint32, DataType.UINT32),
    (torch.uint64, DataType.UINT64),
    (torch.int8, DataType.INT8),
    (torch.int16, DataType.INT16),
    (torch.int32, DataType.INT32),
    (torch.int64, DataType.INT64),
    (torch.float16, DataType.FLOAT16),
    (torch.bfloat16, DataType.BFLOAT16),
    (torch.float32, DataType.FLOAT),
    (torch.float64, DataType.DOUBLE),
    (torch.complex64, DataType.COMPLEX64),
    (torch.complex128, DataType.COMPLEX128),
    (torch.float8_e4m3fn, DataType.FLOAT8E4M3FN),
    (torch.float8_e4m3fnuz, DataType.FLOAT8E4M3FNUZ),
    (torch.float8_e5m2, DataType.FLOAT8E5M2),
    (torch.float8_e5m2fnuz, DataType.FLOAT8E5M2FNUZ),
    (torch.float8_e8m0fnu, DataType.FLOAT8E8M0),
]


@pytest.mark.parametrize(("torch_dtype", "onnx_dtype"), PAIRS, ids=str)
def test_both_ways(torch_dtype, onnx_dtype):
    assert dtypes.onnx_dtype(torch_dtype) is onnx_dtype
    assert dtypes.torch_dtype(onnx_dtype) is torch_dtype


@pytest.mark.parametrize(("torch_dtype", "onnx_dtype"), PAIRS, ids=str)
def test_predicates_agree_with_torch(torch_dtype, onnx_dtype):
    assert dtypes.is_float(onnx_dtype) == torch_dtype.is_floating_point
    assert dtypes.is_complex(onnx_dtype) == torch_dtype.is_complex
    integral = not torch_dtype.is_floating_point and not torch_dtype.is_complex and torch_dtype is not torch.bool
    assert dtypes.is_integer(onnx_dtype) == integral
    assert dtypes.is_unsigned(onnx_dtype) == str(torch_dtype).startswith("torch.uint")
    assert dtypes.is_float8(onnx_dtype) == ("float8" in str(torch_dtype))
    if torch_dtype.itemsize > 1 or integral:
        assert dtypes.is_signed(onnx_dtype) == torch_dtype.is_signed


def test_predicates_of_element_types_that_torch_lacks():
    assert dtypes.is_integer(DataType.INT4)
    assert dtypes.is_unsigned(DataType.UINT4)
    assert not dtypes.is_float(DataType.STRING)


def test_integers_of_two_and_four_bits_are_carried_by_bytes():
    assert dtypes.storage_dtype(DataType.INT4) is dtypes.storage_dtype(DataType.INT2) is torch.int8
    assert dtypes.storage_dtype(DataType.UINT4) is torch.uint8
    assert dtypes.storage_dtype(DataType.FLOAT) is torch.float32
    assert dtypes.is_sub_byte(DataType.UINT2) and not dtypes.is_sub_byte(DataType.UINT8)


def test_the_opset_of_a_dtype():
    assert dtypes.since_opset(DataType.FLOAT) == 1
    assert dtypes.since_opset(DataType.FLOAT8E5M2) == 19
    assert dtypes.since_opset(DataType.INT4) == 21
    assert dtypes.since_opset(DataType.FLOAT8E8M0) == 24


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("dtype", FLOAT8)
def test_overflows_agrees_with_the_cast_of_torch(dtype):
    is_finite = torch.tensor([1e6]).to(dtype).float().isfinite().item()
    assert dtypes.overflows(dtypes.onnx_dtype(dtype)) == (not is_finite)


@pytest.mark.parametrize("bits", range(1, 8))
def test_dtypes_that_torch_only_names_are_refused(bits):
    for name in (f"int{bits}", f"uint{bits}"):
        with pytest.raises(ArgumentError, match=rf"no element type for torch\.{name}"):
            dtypes.onnx_dtype(getattr(torch, name))


def test_packed_floats_are_their_bytes():
    assert dtypes.onnx_dtype(torch.float4_e2m1fn_x2) == DataType.UINT8


def test_unknown_dtypes_are_refused_in_one_sentence():
    with pytest.raises(ArgumentError, match=r"no element type for torch\.qint8"):
        dtypes.onnx_dtype(torch.qint8)
    with pytest.raises(ArgumentError, match="no dtype for the ONNX element type STRING"):
        dtypes.torch_dtype(DataType.STRING)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("number", [-1, 0, 127, 128, 300, -70000, 2**31])
def test_integers_wrap_as_in_torch(dtype: torch.dtype, number: int) -> None:
    assert dtypes.wrapped(number, dtypes.onnx_dtype(dtype)) == torch.tensor(number).to(dtype).item()
