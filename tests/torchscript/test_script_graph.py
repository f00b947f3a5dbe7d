"""Tests of reading TorchScript graphs: sources, blocks, called functions, constants."""

import pytest
import torch
from torch import Tensor

from fx_onnx.messages.errors import CaptureError
from fx_onnx.torchscript.script_graph import GraphReader, Source


@torch.jit.script
def doubled(x: Tensor) -> Tensor:
    return x * 2


@torch.jit.script
def example(x: Tensor, n: int) -> Tensor:
    y = x + 1
    if n > 1:
        y = doubled(x) + y
    return y


def read(script):
    constants = []
    reader = GraphReader(lambda name, tensor: constants.append(tensor) or name)
    return reader.read(script.graph), constants, reader


def test_blocks_and_functions():
    block, _, reader = read(example)
    branch = next(operation for operation in block.operations if operation.kind == "prim::If")
    call = next(operation for operation in branch.blocks[0].operations if operation.kind == "prim::CallFunction")
    body = reader.called(call)
    assert [operation.kind for operation in body.operations if "Constant" not in operation.kind] == ["aten::mul"]
    assert reader.called(call) is body
    assert block.free == frozenset()
    assert len(branch.blocks[0].free) >= 2
    assert branch.source.code == "if n > 1:"
    assert str(branch.source).endswith(f":{branch.source.line}: if n > 1:)")


def test_the_place_of_a_traced_operation():
    block, _, _ = read(torch.jit.trace(lambda x: x + 1, torch.ones(2)))
    source = next(operation.source for operation in block.operations if operation.kind == "aten::add")
    assert source.file.endswith("test_script_graph.py")
    assert source.code == ""
    assert str(Source()) == ""


def test_tensor_constants_are_handed_over():
    weight = torch.ones(2)
    _, constants, _ = read(torch.jit.trace(lambda x: x * weight, torch.ones(2)))
    assert [tuple(constant.shape) for constant in constants] == [(2,)]


def test_operators_of_mkldnn_are_refused():
    model = torch.jit.script(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.ReLU()).eval())
    with pytest.raises(CaptureError, match="runs on the CPU of PyTorch only"):
        read(torch.jit.optimize_for_inference(model))
