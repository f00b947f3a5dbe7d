"""Tests of the private names of TorchScript: each exists in this torch."""

import torch

from fx_onnx.core import script_private


def test_inlined_call_of_a_torchscript_function():
    @torch.jit.script
    def inner(x: torch.Tensor, n: int):
        return x * n

    @torch.jit.script
    def outer(x: torch.Tensor):
        return inner(x, 2)

    (call,) = outer.graph.findAllNodes("prim::CallFunction")
    graph = script_private.inlined_call(call)
    assert [node.kind() for node in graph.nodes() if "Constant" not in node.kind()] == ["aten::mul"]
    assert len(list(graph.inputs())) == 2


def test_script_method_and_class():
    module = torch.jit.script(torch.nn.ReLU())
    assert str(script_private.script_method(module, "forward").schema).startswith("forward(")
    assert script_private.script_method(module, "missing") is None
    assert script_private.script_class(module).endswith("activation.ReLU")
