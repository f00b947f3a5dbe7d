"""A pass of Olive (olive-ai 0.13): its conversion to ONNX, through fx_onnx.

``olive.run(config, package_config=olive_pass.package_config())`` knows the type ``FxOnnxConversion`` besides Olive's
own passes. A file that contains ``package_config()`` as JSON serves ``olive run --package-config FILE``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from olive.package_config import OlivePackageConfig
from olive.passes.onnx.conversion import OnnxConversion

from fx_onnx.integrations.torch_onnx import replacing_torch_onnx

__all__ = ["FxOnnxConversion", "package_config"]


class FxOnnxConversion(OnnxConversion):
    """Converts a model of PyTorch or Hugging Face with the options of Olive's ``OnnxConversion``."""

    def _run_for_config(self, model: Any, config: Any, output_model_path: str) -> Any:
        with replacing_torch_onnx():
            return super()._run_for_config(model, config, output_model_path)


def package_config() -> dict[str, Any]:
    """Returns Olive's own configuration of passes, with ``FxOnnxConversion`` beside ``OnnxConversion``."""
    configuration: dict[str, Any] = json.loads(Path(OlivePackageConfig.get_default_config_path()).read_text("utf-8"))
    passes = configuration["passes"]
    path = f"{FxOnnxConversion.__module__}.{FxOnnxConversion.__name__}"
    passes[FxOnnxConversion.__name__] = {**passes[OnnxConversion.__name__], "module_path": path}
    return configuration
