"""OpenVINO on a CPU, through its ONNX frontend."""

from fx_onnx.passes.legalization.dynamic_quantization import LegalizeDynamicQuantization
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.legalization.tanh_gelu import LegalizeTanhGelu
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="openvino",
    versions="OpenVINO 2025 and 2026, CPU",
    executed=True,
    table="openvino",
    refuses=True,
    legalizations=(
        LegalizeDynamicQuantization(),
        *(each for each in LEGALIZATIONS if not isinstance(each, LegalizeTanhGelu)),
    ),
)
