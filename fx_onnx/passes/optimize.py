"""onnx_ir.Model → onnx_ir.Model: one ordered tuple of passes."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from fx_onnx.core.errors import ArgumentError
from fx_onnx.passes.cleanup.casts import MergeCasts
from fx_onnx.passes.cleanup.common_subexpressions import EliminateCommonSubexpressions
from fx_onnx.passes.cleanup.dead_code import EliminateDeadCode
from fx_onnx.passes.cleanup.expands import EliminateExpands
from fx_onnx.passes.cleanup.identities import EliminateIdentities
from fx_onnx.passes.cleanup.onnx_constant_folding import FoldConstants
from fx_onnx.passes.cleanup.reciprocals import CanonicalizeReciprocals
from fx_onnx.passes.cleanup.reshapes import MergeReshapes
from fx_onnx.passes.cleanup.transposes import MergeTransposes
from fx_onnx.passes.fusion.activation_fusion import FuseGelu, FuseSwish
from fx_onnx.passes.fusion.attention_fusion import FuseAttention
from fx_onnx.passes.fusion.attention_layout import FoldHeadReshapes, FoldRepeatedHeads
from fx_onnx.passes.fusion.batch_norm_folding import FoldBatchNorm
from fx_onnx.passes.fusion.batched_gemm import BatchGemm
from fx_onnx.passes.fusion.gemm_fusion import FuseGemm
from fx_onnx.passes.fusion.pad_folding import FoldPads
from fx_onnx.passes.fusion.rms_norm_fusion import FuseRMSNorm
from fx_onnx.passes.fusion.rotary_fusion import FusePartialRotary, FuseRotaryEmbedding
from fx_onnx.passes.rewriter import Pass, apply
from fx_onnx.passes.weights.dequantized_weights import FuseDequantizeLinear
from fx_onnx.passes.weights.packed_weights import PackWeights
from fx_onnx.passes.weights.quantized_transposes import HoistQuantizedTransposes
from fx_onnx.passes.weights.transposed_weights import FoldWeightTransposes

__all__ = ["PASSES", "optimize"]

PASSES: tuple[Pass, ...] = (
    FoldConstants(),
    EliminateIdentities(),
    MergeCasts(),
    MergeReshapes(),
    MergeTransposes(),
    EliminateExpands(),
    FoldPads(),
    FoldBatchNorm(),
    BatchGemm(),
    FuseGemm(),
    CanonicalizeReciprocals(),
    FuseRMSNorm(),
    FuseGelu(),
    FuseSwish(),
    FuseRotaryEmbedding(),
    FusePartialRotary(),
    FuseAttention(),
    FoldRepeatedHeads(),
    FoldHeadReshapes(),
    PackWeights(),
    FuseDequantizeLinear(),
    HoistQuantizedTransposes(),
    FoldWeightTransposes(),
    EliminateCommonSubexpressions(),
    EliminateDeadCode(),
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
