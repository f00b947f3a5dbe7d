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
Abs 6 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Acos 7 22 T=f32
Acosh 9 22 T=f32
Add 7 13 T=u32,u64,i32,i64,f32,f64
Add 14 14 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Affine 1 1 T=f32
AffineGrid 20 20 T1=f32,f64 T2=i64
And 7 7 T=b8 T1=b8
ArgMax 1 13 T=u8,i8,i32,i64,f32,f64
ArgMin 1 13 T=u8,i8,i32,i64,f32,f64
Asin 7 22 T=f32
Asinh 9 22 T=f32
Atan 7 22 T=f32
Atanh 9 22 T=f32
Attention 23 24 T1=f16 T2=f16 U=b8,f16
Attention 23 24 T1=f32 T2=f32 U=b8,f32
AveragePool 7 22 T=f32
BatchNormalization 7 13 T=f32,f64
BatchNormalization 14 14 T=f32 U=f32
BatchNormalization 14 14 T=f64 U=f64
BatchNormalization 15 15 T=f32 T1=f32 T2=f32
BatchNormalization 15 15 T=f64 T1=f64 T2=f64
BitCast 26 26 T1=u8,u16,u32,u64,i8,i16,i32,i64,f16,bf16,f32,f64 T2=u8,u16,u32,u64,i8,i16,i32,i64,f16,bf16,f32,f64
BitShift 11 11 T=u8,u32,u64
BitwiseAnd 18 18 T=u8,u16,u32,u64,i8,i16,i32,i64
BitwiseNot 18 18 T=u8,u16,u32,u64,i8,i16,i32,i64
BitwiseOr 18 18 T=u8,u16,u32,u64,i8,i16,i32,i64
BitwiseXor 18 18 T=u8,u16,u32,u64,i8,i16,i32,i64
BlackmanWindow 17 17 T1=i32,i64 T2=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Cast 6 25 T1=any T2=any
Ceil 6 13 T=f32,f64
Celu 12 12 T=f32
Clip 6 11 T=f32
Clip 12 13 T=u8,u32,u64,i8,i32,i64,f16,f32,f64
Col2Im 18 18 T=f32
Compress 9 11 T=any T1=b8
Concat 4 13 T=any
ConstantOfShape 9 25 T1=i64 T2=any
Conv 1 22 T=f32
ConvInteger 10 10 T1=u8,i8 T2=u8,i8 T3=i32
ConvTranspose 1 22 T=f32
Cos 7 22 T=f32,f64
Cosh 9 22 T=f32
Crop 1 1 T=f32
CumProd 26 26 T=u32,u64,i32,i64,f32,f64 T2=i32,i64
CumSum 11 14 T=i32,i64,f32,f64 T2=i32,i64
DFT 17 20 T1=f32,f64 T2=i32,i64
DeformConv 19 22 T=f32,f64
DepthToSpace 1 10 T=f32,f64
DepthToSpace 11 13 T=u8,i8,f32,f64
DequantizeLinear 10 18 T=u8,i8,i32
DequantizeLinear 19 20 T1=u8,i8,i32 T2=f16,f32
DequantizeLinear 21 22 T1=u8,u16,i8,i16,i32 T2=f16,f32
DequantizeLinear 23 25 T1=u8,u16,i8,i16,i32 T2=f16,f32 T3=f16,f32
Det 11 22 T=f32
Div 7 13 T=u32,u64,i32,i64,f32,f64
Div 14 14 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Dropout 7 9 T=f16,f32,f64
Dropout 10 11 T=f16,f32,f64 T1=b8
Dropout 12 22 T=f32,f64 T1=f32,f64 T2=b8
DynamicQuantizeLinear 11 11 T2=u8
DynamicSlice 1 1 T=any Tind=i32,i64
Einsum 12 12 T=i32,i64,f32,f64
Elu 6 22 T=f32
Equal 7 10 T=b8,i32,i64,f32,f64 T1=b8
Equal 11 19 T=b8,u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
Erf 9 13 T=f32
Exp 6 13 T=f32,f64
Expand 8 13 T=b8,u8,u16,u32,u64,i8,i16,i32,i64,f16,f32,f64
EyeLike 9 22 T1=u64,i32,i64,f32,f64 T2=u64,i32,i64,f32,f64
Flatten 1 25 T=any
Floor 6 13 T=f32,f64
GRU 7 22 T=f32,f64 T1=i32
Gather 1 13 T=any Tind=i32,i64
GatherElements 11 13 T=any Tind=i32,i64
GatherND 11 13 T=any indices=i64
Gelu 20 20 T=f32
Gemm 7 13 T=f32,f64
GlobalAveragePool 1 22 T=f32
GlobalLpPool 2 2 T=f32
GlobalMaxPool 1 22 T=f32
Greater 7 8 T=f32,f64 T1=b8
Greater 9 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
GreaterOrEqual 12 16 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
GridSample 16 22 T1=f32 T2=f32
GridSample 20 22 T1=f64 T2=f64
HammingWindow 17 17 T1=i32,i64 T2=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
HannWindow 17 17 T1=i32,i64 T2=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
HardSigmoid 6 22 T=f32
Hardmax 1 13 T=f32
Identity 1 13 T=any
Identity 14 25 V=any
If 1 25 B=b8 V=any
ImageScaler 1 1 T=f32
InstanceNormalization 6 22 T=f32
IsInf 10 19 T1=f32,f64 T2=b8
IsInf 20 20 T1=f16,bf16,f32,f64 T2=b8
IsNaN 9 19 T1=f16,f32,f64 T2=b8
IsNaN 20 20 T1=f16,bf16,f32,f64 T2=b8
LRN 1 13 T=f32
LSTM 7 22 T=f32,f64 T1=i32
LayerNormalization 1 16 T=bf16 U=f32 V=bf16
LayerNormalization 1 16 T=f16 U=f32 V=f16
LayerNormalization 1 16 T=f32 U=f32 V=f32
LayerNormalization 1 16 T=f64 U=f32 V=f64
LayerNormalization 17 17 T=f16,bf16,f32,f64 U=f32
LeakyRelu 6 16 T=f32
Less 7 8 T=f32,f64 T1=b8
Less 9 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
LessOrEqual 12 16 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=b8
Log 6 13 T=f32,f64
LogSoftmax 1 13 T=f32,f64
Loop 1 25 B=b8 I=i64 V=any
LpNormalization 1 22 T=f32,f64
LpPool 2 22 T=f32
MatMul 1 8 T=f32,f64
MatMul 9 13 T=u32,u64,i32,i64,f32,f64
MatMulInteger 10 10 T1=u8,i8 T2=u8,i8 T3=i32
Max 6 7 T=f32
Max 8 11 T=f32,f64
Max 12 13 T=u8,u32,u64,i8,i32,i64,f16,f32,f64
MaxPool 1 7 T=f32
MaxPool 8 11 I=i64 T=f32,f64
MaxPool 12 22 I=i64 T=u8,i8,f32,f64
MaxRoiPool 1 1 T=f32
MaxUnpool 9 22 T1=f32 T2=i64
Mean 6 13 T=f32
MeanVarianceNormalization 1 13 T=f32
MelWeightMatrix 17 17 T1=i32,i64 T2=f32 T3=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
MemcpyFromHost 1 1 T=any
MemcpyToHost 1 1 T=any
Min 6 7 T=f32
Min 8 11 T=f32,f64
Min 12 13 T=u8,u32,u64,i8,i32,i64,f16,f32,f64
Mod 10 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f16,f32,f64
Mul 7 13 T=u32,u64,i32,i64,f32,f64
Mul 14 14 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Multinomial 7 7 T1=f32 T2=i32,i64
Neg 6 13 T=i8,i16,i32,i64,f32,f64
NonMaxSuppression 10 11
NonZero 9 13 T=b8,u8,i32,i64,f32
Not 1 1 T=b8
OneHot 9 11 T1=i32 T2=i32 T3=f32
OneHot 9 11 T1=i32,i64,f32 T2=f32 T3=f32
OneHot 9 11 T1=i64 T2=f32 T3=i32
OneHot 9 11 T1=i64 T2=i32,i64 T3=f32
OneHot 9 11 T1=i64,f32 T2=i64 T3=i64
OptionalGetElement 18 18 O=any V=any
OptionalHasElement 18 18 B=b8 O=any
Or 7 7 T=b8 T1=b8
PRelu 7 16 T=f32
Pad 2 10 T=f32,f64
Pad 11 12 T=u8,u32,u64,i8,i32,i64,f32,f64
Pad 13 25 T=b8,u8,u32,u64,i8,i32,i64,f32,f64
ParametricSoftplus 1 1 T=f32
Pow 7 11 T=f32,f64
Pow 12 15 T=i32,i64,f32,f64 T1=i32,i64,f32,f64
QLinearConv 10 10 T1=i8 T2=i8 T3=i8 T4=i32
QLinearConv 10 10 T1=u8 T2=u8,i8 T3=u8 T4=i32
QLinearMatMul 10 20 T1=i8 T2=i8 T3=i8
QLinearMatMul 10 20 T1=u8 T2=u8,i8 T3=u8
QLinearMatMul 21 21 T1=i8 T2=i8 T3=i8 TS=f32
QLinearMatMul 21 21 T1=u8 T2=u8,i8 T3=u8 TS=f32
QuantizeLinear 10 18 T1=f32 T2=u8,i8
QuantizeLinear 19 20 T1=f16,f32 T2=u8,i8
QuantizeLinear 21 22 T1=f16,f32 T2=u8,u16,i8,i16
QuantizeLinear 23 25 T1=f16,f32 T2=f16,f32 T3=u8,u16,i8,i16
RMSNormalization 23 23 T=f16 V=f16
RMSNormalization 23 23 T=f32 V=f32
RMSNormalization 23 23 T=f64 V=f64
RNN 7 22 T=f32 T1=i32
RandomNormal 1 1 T=f32,f64
RandomNormalLike 1 1 T1=any T2=f32,f64
RandomUniform 1 1 T=f32,f64
RandomUniformLike 1 1 T1=any T2=f32,f64
Range 11 27 T=i16,i32,i64,f32,f64
Reciprocal 6 13 T=f32,f64
ReduceL1 1 18 T=i32,i64,f32,f64
ReduceL2 1 18 T=i32,i64,f32,f64
ReduceLogSum 1 18 T=i32,i64,f32,f64
ReduceLogSumExp 1 18 T=i32,i64,f32,f64
ReduceMax 1 11 T=i32,i64,f32,f64
ReduceMax 12 19 T=u8,i8,i32,i64,f32,f64
ReduceMax 20 20 T=b8,u8,i8,i32,i64,f32,f64
ReduceMean 1 18 T=i32,i64,f32,f64
ReduceMin 1 11 T=i32,i64,f32,f64
ReduceMin 12 19 T=u8,i8,i32,i64,f32,f64
ReduceMin 20 20 T=b8,u8,i8,i32,i64,f32,f64
ReduceProd 1 18 T=i32,i64,f32,f64
ReduceSum 1 13 T=i32,i64,f32,f64
ReduceSumSquare 1 18 T=i32,i64,f32,f64
Relu 6 13 T=f32,f64
Relu 14 14 T=i8,i32,f32,f64
Reshape 5 25 T=any shape=i64
Resize 10 10 T=u8,i8,i32,f32
Resize 11 19 T1=u8,i8,i32,f32
ReverseSequence 10 10 T=any
RoiAlign 10 16 T1=f32,f64 T2=i64
RotaryEmbedding 23 23 M=i64 T=f16,f32
Round 11 22 T=f16,f32,f64
STFT 17 17 T1=f32,f64 T2=i32,i64
Scale 1 1 T=f32
ScaledTanh 1 1 T=f32
Scan 8 8 I=i64 V=any
Scan 9 25 V=any
Scatter 9 10 T=any Tind=i32,i64
ScatterElements 11 18 T=any Tind=i32,i64
ScatterND 11 18 T=any
Selu 6 22 T=f32
Shape 1 25 T=any T1=i64
Shrink 9 9 T=u8,u16,u32,u64,i8,i16,i32,i64,f16,bf16,f32,f64
Sigmoid 6 13 T=f32,f64
Sign 9 13 T=u8,u16,u32,u64,i8,i16,i32,i64,f16,bf16,f32,f64
SimplifiedLayerNormalization 1 1 T=bf16 U=f32 V=bf16
SimplifiedLayerNormalization 1 1 T=f16 U=f32 V=f16
SimplifiedLayerNormalization 1 1 T=f32 U=f32 V=f32
SimplifiedLayerNormalization 1 1 T=f64 U=f32 V=f64
Sin 7 22 T=f32,f64
Sinh 9 22 T=f32
Size 1 25 T=b8,u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=i64
Slice 1 9 T=any
Slice 10 13 T=any Tind=i32,i64
Softmax 1 13 T=f32,f64
Softplus 1 22 T=f32
Softsign 1 22 T=f32
SpaceToDepth 1 13 T=u8,i8,f32,f64
Split 2 18 T=any
Sqrt 6 13 T=f32,f64
Squeeze 1 25 T=any
Sub 7 13 T=u32,u64,i32,i64,f32,f64
Sub 14 14 T=u8,u16,u32,u64,i8,i16,i32,i64,f32,f64
Sum 6 13 T=f32,f64
Tan 7 22 T=f32
Tanh 6 13 T=f32,f64
TensorScatter 24 24 T=any
TfIdfVectorizer 9 9 T=i32,i64 T1=f32
ThresholdedRelu 1 22 T=f32
Tile 6 13 T=b8,u8,u16,u32,u64,i8,i16,i32,i64,f32,f64 T1=i64
TopK 1 10 I=i64 T=f32,f64
TopK 11 24 I=i64 T=u8,i8,i16,i32,i64,f32,f64
Transpose 1 25 T=any
Trilu 14 14 T=b8,i32,i64,f32,f64
Unique 11 11 T=i8,i64,f32,f64
Unsqueeze 1 25 T=any
Upsample 7 9 T=u8,i8,i32,f32
Where 9 16 T=u8,u32,i8,i32,i64,f32,f64
Xor 7 7 T=b8 T1=b8
"""
