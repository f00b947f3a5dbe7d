"""The optimizer: one ordered tuple of passes over the ONNX model."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from fx_onnx.messages.arguments import did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.weights import LazyWeight, is_of_state_dict
from fx_onnx.passes.cleanup.constant_evaluation import EvaluateConstants
from fx_onnx.passes.cleanup.identities import (
    eliminate_constant_choices,
    eliminate_expands,
    eliminate_identities,
    eliminate_softmax_shifts,
    eliminate_true_conditions,
    merge_casts,
)
from fx_onnx.passes.cleanup.redundant_nodes import EliminateCommonSubexpressions, EliminateDeadCode
from fx_onnx.passes.cleanup.row_guards import eliminate_row_guards
from fx_onnx.passes.cleanup.shapes import (
    eliminate_index_grids,
    eliminate_trivial_moves,
    merge_reshapes,
    merge_transposes,
    split_selects,
)
from fx_onnx.passes.cleanup.stored_weights import (
    fold_weight_selections,
    fold_weight_transposes,
    hoist_quantized_transposes,
    pack_weights,
    transpose_shared_weights,
)
from fx_onnx.passes.fusion.attention_fusion import (
    fold_cache,
    fold_repeated_heads,
    fold_repeats_into_rows,
    fuse_attention,
    fuse_tensor_scatter,
)
from fx_onnx.passes.fusion.attention_layout import fold_head_reshapes
from fx_onnx.passes.fusion.attention_masks import slice_hidden_keys
from fx_onnx.passes.fusion.linear_layers import batch_gemm, fold_batch_norm, fold_pads, fold_weight_norm, fuse_gemm
from fx_onnx.passes.fusion.norms_and_activations import (
    canonicalize_reciprocals,
    fuse_gelu,
    fuse_rms_norm,
    fuse_swiglu,
    fuse_swish,
)
from fx_onnx.passes.fusion.rotary_fusion import fuse_partial_rotary, fuse_rotary_embedding, fuse_split_rotary
from fx_onnx.passes.rewriter import Pass, apply
from fx_onnx.passes.room_passes import QuantizedWeightPass
from fx_onnx.passes.traversal import all_initializers

__all__ = ["PASSES", "keep_weights", "name_folded_weights", "optimize", "passes_without"]

PASSES: tuple[Pass, ...] = (
    EvaluateConstants(),
    eliminate_identities,
    eliminate_trivial_moves,
    merge_casts,
    merge_reshapes,
    merge_transposes,
    eliminate_expands,
    eliminate_index_grids,
    eliminate_true_conditions,
    eliminate_constant_choices,
    fold_pads,
    fold_weight_norm,
    fold_batch_norm,
    batch_gemm,
    fuse_gemm,
    canonicalize_reciprocals,
    fuse_rms_norm,
    fuse_gelu,
    fuse_swish,
    fuse_swiglu,
    fuse_rotary_embedding,
    fuse_split_rotary,
    fuse_partial_rotary,
    eliminate_softmax_shifts,
    eliminate_row_guards,
    fuse_attention,
    fold_repeated_heads,
    fold_repeats_into_rows,
    fold_cache,
    fuse_tensor_scatter,
    slice_hidden_keys,
    fold_head_reshapes,
    pack_weights,
    QuantizedWeightPass("fuse_dequantize_linear"),
    QuantizedWeightPass("fuse_unpacked_weights"),
    QuantizedWeightPass("gather_quantized_rows"),
    hoist_quantized_transposes,
    fold_weight_selections,
    fold_weight_transposes,
    transpose_shared_weights,
    split_selects,
    EliminateCommonSubexpressions(),
    EliminateDeadCode(),
)
"""All passes in order. Consecutive subclasses of ``Rewrite`` share one walk over the graph."""


def optimize(model: ir.Model, *, without: Collection[str] = ()) -> ir.Model:
    """Optimizes the model in place and returns it, with the same inputs and outputs and with fewer nodes.

    The results are the same up to the rounding of fused operators. Weights are not read: a folded weight is computed
    when it is first read or saved.

    Args:
        model: any ONNX model, also one of another exporter.
        without: the names of passes to switch off; ``docs/passes.md`` lists all names.

    Raises:
        ArgumentError: no pass has one of these names.
    """
    if not isinstance(model, ir.Model):
        raise ArgumentError(
            f"optimize() needs an onnx_ir.Model, such as ONNXProgram.model or onnx_ir.from_proto(...), not "
            f"{shown(model)}."
        )
    return name_folded_weights(apply(model, passes_without(without)))


def name_folded_weights(model: ir.Model) -> ir.Model:
    """Gives each folded weight the name of the weight that it replaces, if no value has that name any more."""
    folded = {
        value: str(value.name).removesuffix("_folded")
        for value in all_initializers(model.graph)
        if isinstance(value.const_value, LazyWeight)
    }
    if folded:
        taken = {value.name for node in model.graph.all_nodes() for value in (*node.inputs, *node.outputs) if value}
        taken.update(value.name for value in (*model.graph.inputs, *all_initializers(model.graph)))
        for value, name in folded.items():
            if name not in taken:
                value.name = name
                taken.add(name)
    return model


def passes_without(names: Collection[str], parameter: str = "without") -> list[Pass]:
    """Returns the passes of the optimizer, in order, without those that have the given names.

    Args:
        names: the names of passes.
        parameter: the name of the caller's argument, for the message.

    Raises:
        ArgumentError: no pass has one of these names.
    """
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"{parameter} must be a collection of names of passes, not {shown(names)}.")
    known = [optimization.name for optimization in PASSES]
    left_out = {names} if isinstance(names, str) else set(names)
    for name in sorted(left_out - set(known)):
        hint = did_you_mean(name, known) or f"; the passes are {', '.join(known)}."
        raise ArgumentError(f"There is no optimization pass {shown(name)}{hint}", id=MessageId.PASS_NAME)
    return [optimization for optimization in PASSES if optimization.name not in left_out]


def keep_weights(model: ir.Model) -> None:
    """Marks the weights of the state_dict, so that no pass replaces one by another that it computes from it.

    It is for a model whose caller supplies or trains the weights.
    """
    for value in model.graph.initializers.values():
        if is_of_state_dict(value.const_value):
            value.meta[metadata.KEPT] = True
