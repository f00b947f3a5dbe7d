"""The version of the installed package, and the versions of torch with which it was tested."""

from __future__ import annotations

import functools
import importlib.metadata
import re

from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId

__all__ = ["NEWEST_TORCH", "OLDEST_TORCH", "check_torch", "version"]

# docs/versions.md tells which tests ran with these versions of torch; pyproject.toml allows all versions between them.
OLDEST_TORCH = "2.11"
NEWEST_TORCH = "2.15"


@functools.cache
def version() -> str:
    """Returns the version that the installed distribution declares, for example ``0.1.0``."""
    return importlib.metadata.version("fx-onnx")


@functools.cache
def check_torch() -> None:
    """Checks the installed torch once in a process. It warns about a torch that is newer than the tested ones.

    Raises:
        OnnxExporterError: torch is too old.
    """
    import torch

    installed = _release(torch.__version__)
    if installed < _release(OLDEST_TORCH):
        raise OnnxExporterError(
            f"fx_onnx {version()} needs torch {OLDEST_TORCH} or newer, but torch {torch.__version__} is installed; "
            "save the model here with torch.export.save, and export the file in another environment, as the page Your "
            "torch is older shows.",
            id=MessageId.TORCH_VERSION,
        )
    if installed > _release(NEWEST_TORCH):
        warn(
            f"fx_onnx {version()} was tested with torch {OLDEST_TORCH} to {NEWEST_TORCH}, but torch "
            f"{torch.__version__} is installed; export with verify=True, which compares the results with the module's.",
            MessageId.TORCH_VERSION,
        )


def _release(text: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version: (2, 14) of ``2.14.1+cu130``."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
