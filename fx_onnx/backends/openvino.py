"""OpenVINO on a CPU, through its ONNX frontend."""

from fx_onnx.backends.legalization.rows import legalizations
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="openvino",
    versions="OpenVINO 2025 and 2026, CPU",
    executed=True,
    table="openvino",
    refuses=True,
    legalizations=legalizations("openvino", without=["legalize_tanh_gelu"]),
)
