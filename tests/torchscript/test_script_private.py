"""Tests of the private names of TorchScript: each exists in this torch."""

import torch

from fx_onnx.torch_internals import guard_private
from fx_onnx.torchscript import script_private


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


def test_the_line_of_a_script_is_the_place_of_guards():
    class Model(torch.nn.Module):
        def forward(self, x):
            script_private.set_script_line("/models/a.py", 7)
            y = x + 1 if x.shape[0] == 4 else x
            script_private.set_script_line("", 0)
            return y + 1 if x.shape[1] == 3 else y

    axes = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(Model(), (torch.randn(4, 3),), dynamic_shapes=(axes,))
    shape_env = next(iter(program.graph.nodes)).meta["val"].fake_mode.shape_env
    first, second = (guard_private.guard_script_line(guard) for guard in shape_env.guards[-2:])
    assert first is not None
    assert (first.filename, first.lineno) == ("/models/a.py", 7)
    assert second is None


def test_a_line_outside_of_a_capture_has_no_effect():
    script_private.set_script_line("/models/a.py", 7)
