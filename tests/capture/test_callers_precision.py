"""The caller's autocast is disabled during an export, and can be enabled again for the captured forward."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from fx_onnx.capture.callers_precision import autocast_disabled


def _product_dtype() -> torch.dtype:
    x = torch.ones(2, 2)
    return (x @ x).dtype


def test_an_enabled_autocast_is_disabled_and_restored() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with autocast_disabled():
            assert not torch.is_autocast_enabled("cpu")
            assert _product_dtype() == torch.float32
        assert torch.is_autocast_enabled("cpu")
        assert _product_dtype() == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_autocast_can_be_enabled_again_with_its_dtype(dtype: torch.dtype) -> None:
    with torch.autocast("cpu", dtype=dtype), autocast_disabled() as enable_again:
        with enable_again():
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_autocast_dtype("cpu") == dtype
        with enable_again():  # each call returns a new context
            assert _product_dtype() == dtype
        assert not torch.is_autocast_enabled("cpu")


def test_without_autocast_nothing_is_enabled_again() -> None:
    with autocast_disabled() as enable_again:
        assert enable_again is nullcontext


def test_autocast_is_restored_after_an_error() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(ValueError, match="capture failed"), autocast_disabled():
            raise ValueError("capture failed")
        assert torch.is_autocast_enabled("cpu")
