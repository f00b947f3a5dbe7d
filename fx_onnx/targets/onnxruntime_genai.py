"""ONNX Runtime with its CPU provider, called by onnxruntime-genai: decoders with one buffer for past and present."""

from dataclasses import replace

from fx_onnx.passes.fusion.group_query_attention import FuseGroupQueryAttention
from fx_onnx.passes.fusion.sink_attention import FuseSinkAttention
from fx_onnx.targets import onnxruntime

__all__ = ["ACCURACY_LEVEL_4", "TARGET"]

_FUSIONS = FuseGroupQueryAttention(), FuseSinkAttention()

TARGET = replace(
    onnxruntime.TARGET,
    name="onnxruntime-genai",
    versions="onnxruntime-genai 0.18 with ONNX Runtime 1.31, CPU provider",
    opset=23,
    fusions=(*_FUSIONS, *onnxruntime.TARGET.fusions),
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
