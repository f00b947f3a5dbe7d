"""onnx_ir.Model → onnx_ir.Model: one ordered tuple of passes."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from fx_onnx.errors import ArgumentError
from fx_onnx.passes.activations import FuseGelu, FuseSwish
from fx_onnx.passes.attention import AttendRows, ShareKeyHeads
from fx_onnx.passes.batch_norm import FoldBatchNorm
from fx_onnx.passes.casts import MergeCasts
from fx_onnx.passes.common_results import ShareResults
from fx_onnx.passes.constants import FoldConstants
from fx_onnx.passes.dequantized_weights import DequantizeWeights
from fx_onnx.passes.expands import DropExpands
from fx_onnx.passes.gemm import FuseGemm
from fx_onnx.passes.neutral import DropNeutral
from fx_onnx.passes.packed_weights import PackWeights
from fx_onnx.passes.pads import FoldPads
from fx_onnx.passes.quantized_transposes import TransposeQuantized
from fx_onnx.passes.reciprocals import DivideByReciprocals
from fx_onnx.passes.reshapes import MergeReshapes
from fx_onnx.passes.rewrite import Pass, apply
from fx_onnx.passes.rms_norm import FuseRMSNorm
from fx_onnx.passes.rotary import FusePartialRotary, FuseRotaryEmbedding
from fx_onnx.passes.row_products import UnfoldGemm
from fx_onnx.passes.spelled_attention import FuseAttention
from fx_onnx.passes.transposed_weights import TransposeWeights
from fx_onnx.passes.transposes import MergeTransposes
from fx_onnx.passes.unused import DropUnused

__all__ = ["PASSES", "optimize"]

PASSES: tuple[Pass, ...] = (
    FoldConstants(),
    DropNeutral(),
    MergeCasts(),
    MergeReshapes(),
    MergeTransposes(),
    DropExpands(),
    FoldPads(),
    FoldBatchNorm(),
    UnfoldGemm(),
    FuseGemm(),
    DivideByReciprocals(),
    FuseRMSNorm(),
    FuseGelu(),
    FuseSwish(),
    FuseRotaryEmbedding(),
    FusePartialRotary(),
    FuseAttention(),
    ShareKeyHeads(),
    AttendRows(),
    PackWeights(),
    DequantizeWeights(),
    TransposeQuantized(),
    TransposeWeights(),
    ShareResults(),
    DropUnused(),
)
"""All passes in order. Neighbours that look at single nodes (``Rewrite``) share one walk over the graph."""


def optimize(model: ir.Model, *, without: Collection[str] = ()) -> ir.Model:
    """The model after all passes, changed in place: same inputs, same outputs, same numbers, fewer nodes.

    Weights are not read: what is folded into them is computed when they are first read or saved.

    Args:
        model: any ONNX model, of this exporter or not.
        without: names of passes to leave out, of ``[each.name for each in PASSES]``.

    Raises:
        ArgumentError: no pass has one of these names.
    """
    names = [each.name for each in PASSES]
    left_out = {without} if isinstance(without, str) else set(without)
    if unknown := sorted(left_out - set(names)):
        raise ArgumentError(f"There is no optimization pass {unknown[0]!r}; the passes are {', '.join(names)}.")
    return apply(model, [each for each in PASSES if each.name not in left_out])
