"""``ExportableModule``: a module that holds its example arguments, its dynamic shapes and the names of its tensors."""

from __future__ import annotations

from typing import Any

import torch

from fx_onnx.export import export
from fx_onnx.program.onnx_program import ONNXProgram

__all__ = ["ExportableModule"]


class ExportableModule(torch.onnx.ExportableModule):
    """The base class of torch.onnx, with an export by fx_onnx.

    A subclass defines ``forward`` and ``example_arguments``, and may define ``dynamic_shapes``, ``input_names`` and
    ``output_names``. ``fx_onnx.export(module)`` accepts subclasses of either class.
    """

    def to_onnx(self, **kwargs: Any) -> ONNXProgram:  # type: ignore[override]
        """Returns the program of this module; the keyword arguments are those of ``export``."""
        return export(self, **kwargs)
