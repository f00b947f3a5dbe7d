"""A precision of cuDNN for each operator does not stop torch.export, and is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.backends import cudnn

import fx_onnx

FLAGS = torch.backends.flags_frozen.__globals__


@pytest.fixture(params=[("ieee", "tf32"), ("ieee", "ieee"), ("tf32", "ieee")], ids=str)
def precisions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    monkeypatch.setitem(FLAGS, "__allow_nonbracketed_mutation_flag", True)  # torch.testing freezes flags
    cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = request.param
    yield request.param
    cudnn.allow_tf32 = True


def test_the_precision_is_kept(precisions: tuple[str, str]) -> None:
    with pytest.raises(RuntimeError, match="different TF32 flags"):
        cudnn.allow_tf32  # noqa: B018
    x = torch.randn(1, 2, 4, 4)
    program = fx_onnx.export(nn.Conv2d(2, 2, 3).eval(), (x,), verify=True, verbose=False)
    assert [node.op_type for node in program.model.graph] == ["Conv"]
    assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == precisions


def test_an_export_tells_why_where_flags_are_frozen(
    precisions: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FLAGS, "__allow_nonbracketed_mutation_flag", False)
    with pytest.raises(fx_onnx.CaptureError, match="different TF32 flags"):
        fx_onnx.export(nn.ReLU().eval(), (torch.randn(2),), verbose=False)
    monkeypatch.setitem(FLAGS, "__allow_nonbracketed_mutation_flag", True)
