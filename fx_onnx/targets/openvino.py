"""OpenVINO on a CPU, through its ONNX frontend."""

from fx_onnx.passes.legalization.dynamic_quantization import legalize_dynamic_quantization
from fx_onnx.passes.legalization.elementwise import legalize_tanh_gelu
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="openvino",
    versions="OpenVINO 2025 and 2026, CPU",
    executed=True,
    table="openvino",
    refuses=True,
    legalizations=(
        legalize_dynamic_quantization,
        *(each for each in LEGALIZATIONS if each is not legalize_tanh_gelu),
    ),
)
