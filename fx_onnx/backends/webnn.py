"""ONNX Runtime Web with its WebNN provider. Not executed."""

from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="webnn",
    versions="onnxruntime-web 1.30, WebNN provider",
    table="webnn",
    without=("slice_hidden_keys",),  # the number of keys would depend on data
    notes=("A node without a kernel runs in the WebAssembly provider.",),
)
