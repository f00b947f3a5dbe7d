"""The private names of dynamo: each has its effect in this torch, and a missing one the documented effect."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import nn

from fx_onnx.torch_internals.dynamo_private import TRACING_MODULES, keep_marks, uncompiled


@pytest.mark.parametrize("name", TRACING_MODULES)
def test_each_tracing_module_exists(name: str) -> None:
    assert importlib.import_module(name.removesuffix("."))


def test_marks_are_removed_and_other_attributes_stay() -> None:
    x = torch.ones(4, 4)
    x.own = 1  # type: ignore[attr-defined]
    torch._dynamo.mark_dynamic(x, 0, min=2)
    torch._dynamo.mark_static(x, 1)
    assert len(vars(x)) > 1
    with keep_marks(x):
        assert vars(x) == {"own": 1}


def test_the_module_that_was_compiled() -> None:
    module = nn.Linear(2, 2)
    assert uncompiled(torch.compile(module)) is module
    assert uncompiled(module) is module
    assert uncompiled(len) is len


def test_hooks_of_the_wrapper_compute() -> None:
    wrapper = torch.compile(nn.Linear(2, 2))
    wrapper.register_forward_hook(lambda module, args, result: result * 2)
    assert uncompiled(wrapper) is wrapper


def test_a_torch_without_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = torch.compile(nn.Linear(2, 2))
    monkeypatch.delattr(torch._dynamo.eval_frame, "OptimizedModule")
    assert uncompiled(wrapper) is wrapper
