"""Tests of equal weights of several files, which are stored once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn

import fx_onnx
from fx_onnx.applications.shared_weights import share_weights


def test_equal_weights_are_in_the_first_data_file_only(tmp_path: Path) -> None:
    shared, own = nn.Linear(32, 32).eval(), nn.Linear(32, 32).eval()
    files = [tmp_path / f"{name}.onnx" for name in ("first", "second", "third")]
    x = torch.randn(2, 32)
    modules = [nn.Sequential(shared), nn.Sequential(shared, own), nn.Sequential(own)]
    for file, module in zip(files, modules, strict=True):
        fx_onnx.export(module, (x,)).save(file, external_data=True)
    share_weights(files)
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("*.data")}
    assert sorted(sizes) == ["first.onnx.data", "second.onnx.data"] and sum(sizes.values()) < 3 * 32 * 32 * 4 + 4096
    for file, module in zip(files, modules, strict=True):
        found = onnxruntime.InferenceSession(file).run(None, {"input": x.numpy()})[0]
        assert np.allclose(found, module(x).detach().numpy(), atol=1e-5)
