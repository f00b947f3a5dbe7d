"""MNN, a runtime for phones. Its converter reads the ONNX model."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.backends.legalization.rows import legalizations
from fx_onnx.onnx_model.dtypes import is_float
from fx_onnx.passes.matchers import attribute, dims, initializer_tensor, is_read
from fx_onnx.targets.target import Lack, Target

__all__ = ["TARGET"]


_LACKS = ("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Bernoulli", "Col2Im", "DFT", "OneHot")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Clip")
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def _dtype(node: ir.Node) -> DataType | None:
    return node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None


def _reads_floats(node: ir.Node) -> bool:
    return (dtype := _dtype(node)) is not None and is_float(dtype)


def _has_second_result(node: ir.Node) -> bool:
    return any(map(is_read, node.outputs[1:]))


def _has_computed_sizes(node: ir.Node) -> bool:
    return len(node.inputs) > 1 and node.inputs[1] is not None and initializer_tensor(node.inputs[1]) is None


def _may_be_uneven(node: ir.Node) -> bool:
    count, sizes = attribute(node, "num_outputs", 0), dims(node.inputs[0])
    size = 0 if sizes is None else sizes[attribute(node, "axis", 0)]
    return count > 0 and (isinstance(size, str) or size % count != 0)


def _reads_wrong_pixels(node: ir.Node) -> bool:
    is_cubic = attribute(node, "mode", "nearest") == "cubic"
    coordinates = attribute(node, "coordinate_transformation_mode", "half_pixel")
    return is_cubic and coordinates not in ("asymmetric", "align_corners")


def _rounds_up(node: ir.Node) -> bool:
    rounding = attribute(node, "nearest_mode", "round_prefer_floor")
    return attribute(node, "mode", "nearest") == "nearest" and rounding in ("ceil", "round_prefer_ceil")


_WRONG: tuple[tuple[tuple[str, ...], Callable[[ir.Node], bool], str], ...] = (
    (
        ("ScatterND", "ScatterElements"),
        lambda node: attribute(node, "reduction", "none") != "none",
        "MNN ignores the reduction and overwrites",
    ),
    (("Resize",), _reads_wrong_pixels, "MNN's cubic interpolation of pixels with centers at halves is wrong"),
    (("Resize",), _rounds_up, "MNN rounds the coordinates down"),
    (("Resize",), lambda node: bool(attribute(node, "antialias", 0)), "MNN ignores antialias"),
    (
        ("GridSample",),
        lambda node: attribute(node, "mode", "linear") not in ("linear", "bilinear"),
        "MNN interpolates linearly only",
    ),
    (
        ("GridSample",),
        lambda node: attribute(node, "padding_mode", "zeros") == "reflection",
        "MNN pads by zeros or the border only",
    ),
    (("Split",), _has_computed_sizes, "the sizes of the parts are computed, and MNN crashes at an empty part"),
    (("Split",), _may_be_uneven, "MNN gives all parts one size, but the last part is smaller for some sizes"),
    (("Unique",), lambda node: "axis" in node.attributes, "MNN ignores the axis"),
    (
        ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
        lambda node: attribute(node, "reduction", "mean") == "mean",
        "MNN's mean counts the targets that are ignored",
    ),
    (("MatMulInteger",), lambda node: True, "MNN multiplies matrices of floats only"),
    (("MatMul", "Gemm"), lambda node: not _reads_floats(node), "MNN multiplies matrices of floats only"),
    (("MatMul",), lambda node: dims(node.outputs[0]) == (), "MNN crashes at the product of two vectors"),
    (
        ("Mod",),
        lambda node: bool(attribute(node, "fmod", 0)) and _reads_floats(node),
        "MNN's remainder has the sign of the divisor",
    ),
    (("MaxPool", "Dropout"), _has_second_result, "MNN has no second result of the operator"),
    (("Round",), lambda node: True, "MNN rounds halves away from zero"),
    (("RoiAlign",), lambda node: attribute(node, "mode", "avg") != "avg", "MNN computes mean values only"),
    (
        (*_ARITHMETIC, *_COMPARISONS),
        lambda node: _dtype(node) in (DataType.INT8, DataType.UINT8),
        "MNN has no arithmetic and no comparison of 8-bit integers",
    ),
)
"""What MNN 3.6.1 computes wrongly and no legalization replaces: the operators, the nodes of them, and the reason."""


def _wrong(node: ir.Node) -> str:
    """Returns what MNN computes wrongly in a node; empty if nothing."""
    return next((reason for names, is_wrong, reason in _WRONG if node.op_type in names and is_wrong(node)), "")


TARGET = Target(
    name="mnn",
    versions="MNN 3.6",
    opset=18,
    executed=True,
    lacks=tuple(Lack(op_type, reason="MNN does not load it or computes it wrongly") for op_type in _LACKS),
    constraint=_wrong,
    refuses=True,
    legalizations=legalizations("mnn"),
)
