"""The kernels of ONNX Runtime's CPU provider and their dtypes: a table that tools/cpu_kernels.py generates."""

from __future__ import annotations

import functools
from typing import NamedTuple

import onnx
from onnx_ir import DataType

__all__ = ["ANY", "DTYPES", "VERSION", "Kernel", "kernels", "since_version"]

VERSION = "1.31.1"
"""The version of onnxruntime from which the table was generated."""

DTYPES = {
    "b8": "bool",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float",
    "f64": "double",
}
"""Short name in the table → dtype. Complex dtypes and 8-bit floats are left out."""

ANY = frozenset(DTYPES)


class Kernel(NamedTuple):
    """The dtypes that one kernel admits, by type variable of the operator or by name of an input or output."""

    admitted: dict[str, frozenset[DataType]]


@functools.cache
def kernels(op_type: str, version: int) -> tuple[Kernel, ...]:
    """Returns the kernels for an operator of ONNX's default domain; ``version`` is its ``since_version``."""
    return tuple(kernel for first, last, kernel in _table().get(op_type, ()) if first <= version <= last)


@functools.cache
def since_version(op_type: str, opset: int) -> int | None:
    """Returns the opset that introduced the operator's version in ``opset``; None if ONNX has no such operator."""
    try:
        return int(onnx.defs.get_schema(op_type, opset).since_version)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def _table() -> dict[str, list[tuple[int, int, Kernel]]]:
    sets = {"any": frozenset(map(_dtype, ANY))}
    table: dict[str, list[tuple[int, int, Kernel]]] = {}
    for line in _TABLE.splitlines():
        op_type, first, last, *words = line.split()
        admitted = {}
        for word in words:
            variable, names = word.split("=")
            if names not in sets:
                sets[names] = frozenset(map(_dtype, names.split(",")))
            admitted[variable] = sets[names]
        table.setdefault(op_type, []).append((int(first), int(last), Kernel(admitted)))
    return table


def _dtype(name: str) -> DataType:
    return DataType[DTYPES[name].upper()]


# Each line: operator, first and last version, then the dtypes of each type variable.
_TABLE = """\
Abs 13 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Acos 7 22 T=f32
Acosh 9 22 T=f32
Add 14 14 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Affine 1 1 T=f32
AffineGrid 20 20 T1=f32,f64 T2=i64
And 7 7 T=b8 T1=b8
ArgMax 13 13 T=u8,i8,i32,i64,f32,f64
ArgMin 13 13 T=u8,i8,i32,i64,f32,f64
Asin 7 22 T=f32
Asinh 9 22 T=f32
Atan 7 22 T=f32
Atanh 9 22 T=f32
Attention 23 24 T1=f16 T2=f16 U=b8,f16
Attention 23 24 T1=f32 T2=f32 U=b8,f32
AveragePool 11 22 T=f32
BatchNormalization 15 15 T=f32 T1=f32 T2=f32
BatchNormalization 15 15 T=f64 T1=f64 T2=f64
BitCast 26 26 T1=u8,u16,u32,u64,i8,i16,i32,i64,f16,bf16,f32,f64 T2=u8,u16,u32,u64,i8,i16,i32,i64,f16,bf16,f32,f64
BitShift 11 11 T=u8,u32,u64
BitwiseAnd 18 18 T=u8,u16,u32,u64,i8,i16,i32,i64
BitwiseNot 18 18 T=u8,u16,u32,u64,i8,i16,i32,i64
BitwiseOr 18 18 T=u8,u16,u32,u64,i8,i16,i32,i64
BitwiseXor 18 18 T=u8,u16,u32,u64,i8,i16,i32,i64
BlackmanWindow 17 17 T1=i32,i64 T2=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Cast 13 25 T1=any T2=any
Ceil 13 13 T=f32,f64
Celu 12 12 T=f32
Clip 13 13 T=u8,u32,u64,i8,i32,i64,f16,f32,f64
Col2Im 18 18 T=f32
Compress 11 11 T=any T1=b8
Concat 13 13 T=any
ConstantOfShape 9 25 T1=i64 T2=any
Conv 11 22 T=f32
ConvInteger 10 10 T1=u8,i8 T2=u8,i8 T3=i32
ConvTranspose 11 22 T=f32
Cos 7 22 T=f32,f64
Cosh 9 22 T=f32
Crop 1 1 T=f32
CumProd 26 26 T=u32,u64,i32,i64,f32,f64 T2=i32,i64
CumSum 14 14 T=i32,i64,f32,f64 T2=i32,i64
DFT 17 20 T1=f32,f64 T2=i32,i64
DeformConv 19 22 T=f32,f64
DepthToSpace 13 13 T=u8,i8,f32,f64
DequantizeLinear 13 18 T=u8,i8,i32
DequantizeLinear 19 20 T1=u8,i8,i32 T2=f16,f32
DequantizeLinear 21 22 T1=u8,u16,i8,i16,i32 T2=f16,f32
DequantizeLinear 23 25 T1=u8,u16,i8,i16,i32 T2=f16,f32 T3=f16,f32
Det 11 22 T=f32
Div 14 14 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Dropout 13 22 T=f32,f64 T1=f32,f64 T2=b8
DynamicQuantizeLinear 11 11 T2=u8
DynamicSlice 1 1 T=any Tind=i32,i64
Einsum 12 12 T=i32,i64,f32,f64
Elu 6 22 T=f32
Equal 13 19 T=b8,u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
Erf 13 13 T=f32
Exp 13 13 T=f32,f64
Expand 13 13 T=b8,u8,u16,u32,u64,i8,i16,i32,i64,f16,f32,f64
EyeLike 9 22 T1=u64,i32,i64,f32,f64 T2=u64,i32,i64,f32,f64
Flatten 13 25 T=any
Floor 13 13 T=f32,f64
GRU 14 22 T=f32,f64 T1=i32
Gather 13 13 T=any Tind=i32,i64
GatherElements 13 13 T=any Tind=i32,i64
GatherND 13 13 T=any indices=i64
Gelu 20 20 T=f32
Gemm 13 13 T=f32,f64
GlobalAveragePool 1 22 T=f32
GlobalLpPool 2 2 T=f32
GlobalMaxPool 1 22 T=f32
Greater 13 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
GreaterOrEqual 16 16 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
GridSample 16 22 T1=f32 T2=f32
GridSample 20 22 T1=f64 T2=f64
HammingWindow 17 17 T1=i32,i64 T2=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
HannWindow 17 17 T1=i32,i64 T2=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
HardSigmoid 6 22 T=f32
Hardmax 13 13 T=f32
Identity 16 25 V=any
If 16 25 B=b8 V=any
ImageScaler 1 1 T=f32
InstanceNormalization 6 22 T=f32
IsInf 10 19 T1=f32,f64 T2=b8
IsInf 20 20 T1=f16,bf16,f32,f64 T2=b8
IsNaN 13 19 T1=f16,f32,f64 T2=b8
IsNaN 20 20 T1=f16,bf16,f32,f64 T2=b8
LRN 13 13 T=f32
LSTM 14 22 T=f32,f64 T1=i32
LayerNormalization 17 17 T=f16,bf16,f32,f64 U=f32
LeakyRelu 16 16 T=f32
Less 13 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
LessOrEqual 16 16 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
Log 13 13 T=f32,f64
LogSoftmax 13 13 T=f32,f64
Loop 16 25 B=b8 I=i64 V=any
LpNormalization 1 22 T=f32,f64
LpPool 18 22 T=f32
MatMul 13 13 T=u32,u64,i32,i64,f32,f64
MatMulInteger 10 10 T1=u8,i8 T2=u8,i8 T3=i32
Max 13 13 T=u8,u32,u64,i8,i32,i64,f16,f32,f64
MaxPool 12 22 I=i64 T=u8,i8,f32,f64
MaxRoiPool 1 1 T=f32
MaxUnpool 11 22 T1=f32 T2=i64
Mean 13 13 T=f32
MeanVarianceNormalization 13 13 T=f32
MelWeightMatrix 17 17 T1=i32,i64 T2=f32 T3=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
MemcpyFromHost 1 1 T=any
MemcpyToHost 1 1 T=any
Min 13 13 T=u8,u32,u64,i8,i32,i64,f16,f32,f64
Mod 13 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f16,f32,f64
Mul 14 14 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Multinomial 7 7 T1=f32 T2=i32,i64
Neg 13 13 T=i8,i16,i32,i64,f32,f64
NonMaxSuppression 11 11
NonZero 13 13 T=b8,u8,i32,i64,f32
Not 1 1 T=b8
OneHot 11 11 T1=i32 T2=i32 T3=f32
OneHot 11 11 T1=i32,i64,f32 T2=f32 T3=f32
OneHot 11 11 T1=i64 T2=f32 T3=i32
OneHot 11 11 T1=i64 T2=i32,i64 T3=f32
OneHot 11 11 T1=i64,f32 T2=i64 T3=i64
OptionalGetElement 18 18 O=any V=any
OptionalHasElement 18 18 B=b8 O=any
Or 7 7 T=b8 T1=b8
PRelu 16 16 T=f32
Pad 18 25 T=b8,u8,u32,u64,i8,i32,i64,f32,f64
ParametricSoftplus 1 1 T=f32
Pow 15 15 T=i32,i64,f32,f64 T1=i32,i64,f32,f64
QLinearConv 10 10 T1=i8 T2=i8 T3=i8 T4=i32
QLinearConv 10 10 T1=u8 T2=u8,i8 T3=u8 T4=i32
QLinearMatMul 10 20 T1=i8 T2=i8 T3=i8
QLinearMatMul 10 20 T1=u8 T2=u8,i8 T3=u8
QLinearMatMul 21 21 T1=i8 T2=i8 T3=i8 TS=f32
QLinearMatMul 21 21 T1=u8 T2=u8,i8 T3=u8 TS=f32
QuantizeLinear 13 18 T1=f32 T2=u8,i8
QuantizeLinear 19 20 T1=f16,f32 T2=u8,i8
QuantizeLinear 21 22 T1=f16,f32 T2=u8,u16,i8,i16
QuantizeLinear 23 25 T1=f16,f32 T2=f16,f32 T3=u8,u16,i8,i16
RMSNormalization 23 23 T=f16 V=f16
RMSNormalization 23 23 T=f32 V=f32
RMSNormalization 23 23 T=f64 V=f64
RNN 14 22 T=f32 T1=i32
RandomNormal 1 1 T=f32,f64
RandomNormalLike 1 1 T1=any T2=f32,f64
RandomUniform 1 1 T=f32,f64
RandomUniformLike 1 1 T1=any T2=f32,f64
Range 11 27 T=i16,i32,i64,f32,f64
Reciprocal 13 13 T=f32,f64
ReduceL1 18 18 T=i32,i64,f32,f64
ReduceL2 18 18 T=i32,i64,f32,f64
ReduceLogSum 18 18 T=i32,i64,f32,f64
ReduceLogSumExp 18 18 T=i32,i64,f32,f64
ReduceMax 18 19 T=u8,i8,i32,i64,f32,f64
ReduceMax 20 20 T=b8,u8,i8,i32,i64,f32,f64
ReduceMean 18 18 T=i32,i64,f32,f64
ReduceMin 18 19 T=u8,i8,i32,i64,f32,f64
ReduceMin 20 20 T=b8,u8,i8,i32,i64,f32,f64
ReduceProd 18 18 T=i32,i64,f32,f64
ReduceSum 13 13 T=i32,i64,f32,f64
ReduceSumSquare 18 18 T=i32,i64,f32,f64
Relu 14 14 T=i8,i32,f32,f64
Reshape 14 25 T=any shape=i64
Resize 18 19 T1=u8,i8,i32,f32
ReverseSequence 10 10 T=any
RoiAlign 16 16 T1=f32,f64 T2=i64
RotaryEmbedding 23 23 M=i64 T=f16,f32
Round 11 22 T=f16,f32,f64
STFT 17 17 T1=f32,f64 T2=i32,i64
Scale 1 1 T=f32
ScaledTanh 1 1 T=f32
Scan 16 25 V=any
ScatterElements 18 18 T=any Tind=i32,i64
ScatterND 18 18 T=any
Selu 6 22 T=f32
Shape 15 25 T=any T1=i64
Shrink 9 9 T=u8,u16,u32,u64,i8,i16,i32,i64,f16,bf16,f32,f64
Sigmoid 13 13 T=f32,f64
Sign 13 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f16,bf16,f32,f64
SimplifiedLayerNormalization 1 1 T=bf16 U=f32 V=bf16
SimplifiedLayerNormalization 1 1 T=f16 U=f32 V=f16
SimplifiedLayerNormalization 1 1 T=f32 U=f32 V=f32
SimplifiedLayerNormalization 1 1 T=f64 U=f32 V=f64
Sin 7 22 T=f32,f64
Sinh 9 22 T=f32
Size 13 25 T=b8,u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=i64
Slice 13 13 T=any Tind=i32,i64
Softmax 13 13 T=f32,f64
Softplus 1 22 T=f32
Softsign 1 22 T=f32
SpaceToDepth 13 13 T=u8,i8,f32,f64
Split 18 18 T=any
Sqrt 13 13 T=f32,f64
Squeeze 13 25 T=any
Sub 14 14 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Sum 13 13 T=f32,f64
Tan 7 22 T=f32
Tanh 13 13 T=f32,f64
TensorScatter 24 24 T=any
TfIdfVectorizer 9 9 T=i32,i64 T1=f32
ThresholdedRelu 10 22 T=f32
Tile 13 13 T=b8,u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=i64
TopK 11 24 I=i64 T=u8,i8,i16,i32,i64,f32,f64
Transpose 13 25 T=any
Trilu 14 14 T=b8,i32,i64,f32,f64
Unique 11 11 T=i8,i64,f32,f64
Unsqueeze 13 25 T=any
Where 16 16 T=u8,u32,i8,i32,i64,f32,f64
Xor 7 7 T=b8 T1=b8
"""
