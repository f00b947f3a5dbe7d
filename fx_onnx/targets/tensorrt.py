"""TensorRT through its ONNX parser. Not executed."""

from fx_onnx.targets.target import Lack, Target

__all__ = ["TARGET"]

TARGET = Target(
    name="tensorrt",
    versions="TensorRT 10",
    opset=18,
    lacks=(Lack("Compress", reason="the parser has no rule for it"),),
)
