"""The known targets by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_onnx.extension_points.plugins import Group
from fx_onnx.extension_points.rooms import TABLE, find
from fx_onnx.messages.arguments import did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

if TYPE_CHECKING:
    from fx_onnx.targets.target import Target

__all__ = ["NAMES", "PLUGINS", "VARIANTS", "find_target"]

VARIANTS = {f"{name}-accuracy-level-4": name for name in ("onnxruntime", "onnxruntime-genai")}
"""Targets for the same runtime with faster, less exact products, and the name of the exact target."""

NAMES = tuple(name for name in TABLE["fx_onnx.targets"] if name not in VARIANTS)
"""The names of all runtimes."""

_USUAL_NAMES = {
    "ort": "onnxruntime",
    "cpu": "onnxruntime",
    "genai": "onnxruntime-genai",
    "ortgenai": "onnxruntime-genai",
    "ortweb": "onnxruntime-web",
    "wasm": "onnxruntime-web",
    "web": "onnxruntime-web",
    "cuda": "onnxruntime-cuda",
    "gpu": "onnxruntime-cuda",
    "ortcuda": "onnxruntime-cuda",
    "ortgpu": "onnxruntime-cuda",
    "onnxruntimegpu": "onnxruntime-cuda",
    "trt": "tensorrt",
    "dml": "directml",
}
"""Other names of targets: short ones, and those of ONNX Runtime's execution providers without their end."""


def _is_target(value: object) -> bool:
    from fx_onnx.targets.target import Target

    return isinstance(value, Target)


PLUGINS = Group("fx_onnx.targets", "a record of fx_onnx.Target", _is_target)


def find_target(target: str | Target) -> Target:
    """Returns the target of this name, which may be that of a plug-in; a record is returned as it is.

    Raises:
        ArgumentError: there is no such target.
        PluginError: a plug-in of this name cannot be loaded, or is another one's.
    """
    if not isinstance(target, str):
        from fx_onnx.targets.target import Target

        if isinstance(target, Target):
            return target
    plugin = PLUGINS.find(target, TABLE["fx_onnx.targets"]) if isinstance(target, str) else None
    if plugin is not None:
        record: Target = plugin.value
        return record
    if not isinstance(target, str) or target not in TABLE["fx_onnx.targets"]:
        hint = _hint(target) or f"; the targets are {', '.join((*NAMES, *PLUGINS.names()))}."
        raise ArgumentError(f"There is no target {shown(target)}{hint}", id=MessageId.TARGET)
    built_in: Target = find("fx_onnx.targets", target)
    return built_in


def _hint(name: object) -> str:
    """Returns the clause that names the target that the user may mean; empty if no name is like it."""
    letters = "".join(filter(str.isalnum, str(name).lower())).removesuffix("executionprovider")
    return did_you_mean(_USUAL_NAMES.get(letters, letters), (*TABLE["fx_onnx.targets"], *PLUGINS.names()))
