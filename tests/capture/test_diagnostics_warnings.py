"""Warnings of torch's own files are logged; those of the user's code and of libraries are shown."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch

from fx_onnx.capture.diagnostics import redirect_torch_warnings


def test_which_warnings_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fx_onnx.torch")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with redirect_torch_warnings():
            warnings.warn_explicit("internal", UserWarning, torch.__file__, 5)
            warnings.warn("of the user", UserWarning, stacklevel=1)
        warnings.warn_explicit("after the export", UserWarning, torch.__file__, 5)
    assert [str(each.message) for each in caught] == ["of the user", "after the export"]
    assert f"{torch.__file__}:5: UserWarning: internal" in caplog.messages
