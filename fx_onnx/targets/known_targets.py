"""The known targets by name."""

from __future__ import annotations

from importlib import import_module

from fx_onnx.core.arguments import did_you_mean, shown
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId
from fx_onnx.targets.target import Target

__all__ = ["NAMES", "find_target"]

NAMES = (
    "onnxruntime",
    "onnxruntime-genai",
    "onnxruntime-web",
    "openvino",
    "reference",
    "tract",
    "mnn",
    "onnxruntime-cuda",
    "tensorrt",
    "coreml",
    "directml",
    "webgpu",
    "webnn",
)
"""The names of all targets. The file of a target has its name, with underscores."""


def find_target(target: str | Target) -> Target:
    """Returns the target of this name; a record is returned as it is.

    Raises:
        ArgumentError: there is no such target.
    """
    if isinstance(target, Target):
        return target
    if target not in NAMES:
        hint = did_you_mean(target, NAMES) or f"; the targets are {', '.join(NAMES)}."
        raise ArgumentError(f"There is no target {shown(target)}{hint}", id=MessageId.TARGET)
    found: Target = import_module(f"fx_onnx.targets.{target.replace('-', '_')}").TARGET
    return found
