"""Patch for ``torch.linalg.lstsq``: torch cannot infer the shapes of its results, which depend on the driver."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import fx_onnx.core.custom_ops  # noqa: F401  defines fx_onnx::lstsq
from fx_onnx.capture.patches.patching import PatchTable

__all__ = ["PATCHES"]


def _lstsq(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Replaces ``torch.linalg.lstsq`` by an operator that has a shape function; the default driver is that of CPUs."""
    return torch.return_types.linalg_lstsq(  # type: ignore[attr-defined]  # torch creates it when it is imported
        torch.ops.fx_onnx.lstsq(input, b, rcond, driver=driver or "gelsy")
    )


PATCHES: PatchTable = {("torch.linalg", "lstsq"): _lstsq}
