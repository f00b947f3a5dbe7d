"""Entered modules are counted while torch captures; the hooks leave no trace."""

from __future__ import annotations

import torch

import fx_onnx
from fx_onnx.capture.patches.module_hooks import watch_modules
from fx_onnx.messages.progress import progress_to

X = torch.ones(2, 3)


def model() -> torch.nn.Module:
    shared = torch.nn.Linear(3, 3)
    return torch.nn.Sequential(shared, torch.nn.ReLU(), shared, torch.nn.Sequential(torch.nn.Linear(3, 4))).eval()


def test_each_module_counts_once() -> None:
    module, received = model(), []
    with progress_to(lambda done, total: received.append((done, total))), watch_modules(module, strict=False):
        module(X)
    assert received == [(number, 5) for number in range(1, 6)]
    assert not any(each._forward_pre_hooks for each in module.modules())


def test_no_hook_for_nobody() -> None:
    module = model()
    with watch_modules(module, strict=False):
        assert not any(each._forward_pre_hooks for each in module.modules())


def test_the_export_is_the_same_with_and_without_hooks() -> None:
    module, received = model(), []

    def export() -> bytes:
        return fx_onnx.export(module, (X,), dynamic_shapes=({0: "rows"},)).model_proto.SerializeToString()

    with progress_to(lambda done, total: received.append((done, total))):
        shown = export()
    assert (5, 5) in received
    assert shown == export()
