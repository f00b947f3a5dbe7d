"""ONNX Runtime with its CPU provider, called by onnxruntime-genai: decoders with one buffer for past and present."""

from dataclasses import replace

import onnx_ir as ir

from fx_onnx.backends.group_query_attention import fuse_group_query_attention, fuse_sink_attention
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.passes.fusion.norms_and_activations import fuse_skip_norm
from fx_onnx.targets import onnxruntime

__all__ = ["ACCURACY_LEVEL_4", "TARGET"]

_CACHES = "past_key_values", "cache_params"
"""The parameters of transformers' models that take a cache; the inputs are named after them."""
_PARTS = {"key", "value", "conv_states", "recurrent_states", "linear_cache"}
"""What onnxruntime-genai keeps of a layer: keys and values, and the states of layers without attention."""


def _check_cache(model: ir.Model) -> None:
    """Warns of a cache with other inputs: counters of tokens, or the keys of indexers."""
    names = [str(value.name) for value in model.graph.inputs if not value.is_initializer()]
    parts = {name: name.split(".") for name in names}
    others = [name for name in names if parts[name][0] in _CACHES and not _PARTS & set(parts[name])]
    if not others:
        return
    if others[0].endswith(".cumulative_length"):
        reason = f"onnxruntime-genai cannot run the program, because it gives no value to the input {others[0]!r}"
        advice = (
            "export with the arguments that fx_onnx.text_generation_arguments(model, full_cache=True) returns, or call"
        )
    else:
        reason = f"save_genai refuses the program, because it does not describe the input {others[0]!r}"
        advice = "call"
    warn(f"{reason}; {advice} the program with ONNX Runtime.", MessageId.GENAI_PROGRAM)


_FUSIONS = fuse_group_query_attention, fuse_sink_attention, fuse_skip_norm

TARGET = replace(
    onnxruntime.TARGET,
    name="onnxruntime-genai",
    versions="onnxruntime-genai 0.18 with ONNX Runtime 1.31, CPU provider",
    opset=23,
    fusions=(*_FUSIONS, *onnxruntime.TARGET.fusions),
    check=_check_cache,
    notes=(
        "A decoder takes prompts that are padded on the right: its attention reads the number of tokens of each text.",
        "The mask has one column for each token of past and prompt. The buffer of the past may be longer.",
        "With a past, either the batch or the number of new tokens is 1.",
    ),
)

ACCURACY_LEVEL_4 = replace(
    TARGET,
    name="onnxruntime-genai-accuracy-level-4",
    fusions=(*_FUSIONS, *onnxruntime.ACCURACY_LEVEL_4.fusions),
    notes=(*TARGET.notes, onnxruntime.ROUNDING_NOTE),
)
