"""The manifest of a model package of ONNX Runtime 1.32, which its Python class ``ModelPackageContext`` reads.

Each ONNX file is a component, so an application selects a part and a precision by name. ONNX Runtime selects a variant
of it by the execution provider of the session, which must be named. A program is the same for each provider, so all
variants of a component are one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fx_onnx.files.destination import write_json

__all__ = ["write_manifest"]

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""The name of a variant → the execution provider that it is selected for."""


def write_manifest(folder: Path, names: Sequence[str]) -> None:
    """Writes ``manifest.json``.

    Args:
        folder: the package.
        names: its ONNX files, relative to the folder.
    """
    components = {
        Path(name).stem: {
            "variants": {
                variant: {"ep": provider, "executor_info": {"ort": {"model_file": name}}}
                for variant, provider in _PROVIDERS.items()
            }
        }
        for name in names
    }
    write_json(folder / "manifest.json", {"schema_version": "1.0", "components": components})
