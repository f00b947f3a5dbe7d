"""``InputObserver``: finds the arguments and the dynamic shapes for an export while the user's code calls the model."""

from __future__ import annotations

from typing import Any, cast

import torch.onnx

from fx_onnx.program.onnx_program import ONNXProgram

__all__ = ["InputObserver"]


class InputObserver(torch.onnx.InputObserver):
    """The class of torch.onnx, which compares programs of fx_onnx too."""

    def check_discrepancies(
        self, onnx_program: torch.onnx.ONNXProgram | ONNXProgram, *args: Any, **kwargs: Any
    ) -> list[dict[str, str | int | float | bool]]:
        """Returns the differences between the observed results and those of a program, one row for each call."""
        return super().check_discrepancies(cast(Any, onnx_program), *args, **kwargs)
