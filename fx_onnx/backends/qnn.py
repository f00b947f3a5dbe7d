"""ONNX Runtime with its QNN provider, for Qualcomm's Hexagon NPUs. Compiled and run in the simulator of the package."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.backends.legalization.rows import legalizations
from fx_onnx.backends.legalization.static_shapes import MOST_AXES
from fx_onnx.backends.qnn_compiler import compile_model, dynamic_dim
from fx_onnx.messages.errors import UnsupportedOperatorError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.room_passes import QuantizedWeightPass
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]


def _check_shapes(model: ir.Model) -> None:
    """Checks that no input has a dynamic dim.

    Raises:
        UnsupportedOperatorError: one has.
    """
    if text := dynamic_dim(model):
        raise UnsupportedOperatorError(
            f"The target qnn cannot run the model: {text}; export without dynamic_shapes, one model for each size.",
            id=MessageId.TARGET_LACKS_OPERATOR,
        )


def _refusal(node: ir.Node) -> str:
    """Returns why the compiler refuses a node that its table has; empty if it takes the node."""
    ranks = [len(sizes) for value in (*node.inputs, *node.outputs) if (sizes := dims(value)) is not None]
    return f"a tensor has more than {MOST_AXES} axes" if max(ranks, default=0) > MOST_AXES else ""


TARGET = Target(
    name="qnn",
    versions="onnxruntime-qnn 2.7",
    executed=True,
    table="qnn",
    constraint=_refusal,
    legalizations=(
        QuantizedWeightPass("fuse_matmul_nbits"),
        *legalizations("qnn", "qnn", without=("legalize_random_draws", "legalize_64_bit")),
    ),
    domains=("com.microsoft.MatMulNBits",),
    check=_check_shapes,
    compiler=compile_model,
    notes=(
        "Shapes are static.",
        "The NPU computes float32 in float16 (the option enable_htp_fp16_precision), and int64 in int32.",
        "Set session.disable_cpu_ep_fallback to 1: then a model of which a node would run on the CPU does not load.",
    ),
)
