"""tract, a runtime in Rust."""

from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="tract",
    versions="tract 0.23",
    opset=18,
    executed=True,
)
