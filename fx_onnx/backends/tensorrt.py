"""TensorRT through its ONNX parser. Compiled with TensorRT for RTX, and not run."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.backends.float4_weights import FLOAT4_WEIGHTS
from fx_onnx.backends.legalization.products import asymmetry
from fx_onnx.backends.legalization.rows import legalizations
from fx_onnx.backends.tensorrt_compiler import compile_model
from fx_onnx.passes.matchers import attribute, constant_integers, dims, is_read, producer_of
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

_MOST_OF_TOP_K = 3840
_REDUCTIONS = tuple(
    f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
_DRAWS = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def _rank(node: ir.Node, index: int = 0) -> int | None:
    sizes = dims(node.inputs[index])
    return None if sizes is None else len(sizes)


def _is_static(value: ir.Value | None) -> bool:
    sizes = dims(value)
    return sizes is not None and all(isinstance(size, int) for size in sizes)


def _has_more_than_maxima(node: ir.Node) -> bool:
    return any(map(is_read, node.outputs[1:])) or any(step != 1 for step in attribute(node, "dilations", []))


def _has_dynamic_kernel(node: ir.Node) -> bool:
    cast = producer_of(node.inputs[1], "Cast")  # one that the target inserted has no shape
    sizes = dims(node.inputs[1] if cast is None else cast.inputs[0]) or ()
    return any(not isinstance(size, int) for size in sizes[2:])


def _has_longer_indices(node: ir.Node) -> bool:
    sizes, counts = dims(node.inputs[0]) or (), dims(node.inputs[1]) or ()
    pairs = zip(sizes, counts, strict=False)
    return any(isinstance(size, int) and isinstance(count, int) and count > size for size, count in pairs)


def _takes_too_many(node: ir.Node) -> bool:
    count = constant_integers(node.inputs[1])
    return count is not None and count[0] > _MOST_OF_TOP_K


_REFUSED: tuple[tuple[tuple[str, ...], Callable[[ir.Node], bool], str], ...] = (
    (
        ("ScatterND", "ScatterElements"),
        lambda node: attribute(node, "reduction", "none") != "none",
        "TensorRT has no scatter with a reduction",
    ),
    (("ScatterElements",), _has_longer_indices, "the indices are longer than the tensor"),
    (("Conv", "ConvTranspose"), _has_dynamic_kernel, "the sizes of the kernel are dynamic"),
    (("TopK",), _takes_too_many, f"TensorRT sorts at most {_MOST_OF_TOP_K:,} elements"),
    (("EyeLike",), lambda node: not _is_static(node.inputs[0]), "the sizes are dynamic"),
    (("Resize",), lambda node: bool(attribute(node, "antialias", 0)), "TensorRT has no antialias"),
    (
        ("Einsum",),
        lambda node: any(map(str.isupper, attribute(node, "equation", ""))),
        "TensorRT takes small letters only",
    ),
    (("MaxPool",), _has_more_than_maxima, "TensorRT has no indices and dilations of a pooling"),
    (("Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin"), lambda node: _rank(node) == 1, "the input is a vector"),
    (_REDUCTIONS, lambda node: _rank(node) == 0, "the input has no axes"),
    (
        _DRAWS,
        lambda node: dims(node.outputs[0]) == () or attribute(node, "shape", None) == (),
        "TensorRT draws no tensor without axes",
    ),
    (("BatchNormalization",), lambda node: bool(attribute(node, "training_mode", 0)), "TensorRT has no training mode"),
)
"""What TensorRT for RTX 1.7.1 does not build: the operators, the nodes of them, and the reason."""


def _refusal(node: ir.Node) -> str:
    """Returns why TensorRT refuses a node although it has a kernel for the operator and the dtypes; empty if not."""
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return asymmetry(node)
    return next((reason for names, is_refused, reason in _REFUSED if node.op_type in names and is_refused(node)), "")


def _inexact(node: ir.Node) -> str:
    is_wide = any(value is not None and value.dtype == DataType.DOUBLE for value in (*node.inputs, *node.outputs))
    return "TensorRT computes float64 in float32" if is_wide else ""


TARGET = Target(
    name="tensorrt",
    versions="TensorRT 10",
    opset=18,
    table="tensorrt",
    constraint=_refusal,
    inexact=_inexact,
    translations=(FLOAT4_WEIGHTS,),
    # TensorRT draws random numbers itself, and reads float64 as float32.
    legalizations=legalizations("tensorrt", "tensorrt", without=("legalize_random_draws", "legalize_64_bit")),
    compiler=compile_model,
    # The number of keys would depend on data; the other two leave forms that TensorRT does not fuse.
    without=("slice_hidden_keys", "fold_repeats_into_rows", "fold_cache"),
    notes=(
        "The table is that of TensorRT for RTX, the nearest one in a package; TensorRT may differ.",
        "float64 is computed in float32.",
        "It takes quantized models only if they are symmetric: int8, zero points of 0, one scale for an activation.",
    ),
)
