"""The module has the names of torch.onnx.verification."""

from __future__ import annotations

import torch.onnx.verification

from fx_onnx import verification


def test_the_names_of_torch() -> None:
    assert set(torch.onnx.verification.__all__) <= set(verification.__all__)
    assert [name for name in verification.__all__ if not hasattr(verification, name)] == []
