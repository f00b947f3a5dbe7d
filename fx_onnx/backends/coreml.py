"""ONNX Runtime with its CoreML provider. Not executed."""

from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="coreml",
    versions="ONNX Runtime 1.29 to 1.31, CoreML provider",
    opset=18,
    table="coreml",
    without=("slice_hidden_keys",),  # the number of keys would depend on data
    notes=(
        "The table is that of the option ModelFormat=MLProgram.",
        "A node without a kernel runs in the CPU provider.",
    ),
)
