"""A Loop with a number of iterations, with a condition, and with collected values."""

from collections.abc import Sequence

import onnx
import onnx_ir as ir
import torch
from onnx_ir import Value

from fx_onnx import ONNXProgram
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization.loops import Iteration, loop
from tests.passes.checking import model, run


def doubled(f: NodeBuilder, number: Value, carried: Sequence[Value]) -> Iteration:
    """Doubles the carried value while it is below 100, and collects the numbers of the iterations."""
    twice = f.Add(*carried, *carried)
    return Iteration([twice], [number], again=f.Less(twice, 100.0))


def counted(f: NodeBuilder, number: Value, carried: Sequence[Value]) -> Iteration:
    return Iteration([f.Add(*carried, *carried)], [number])


def test_loop() -> None:
    program = model("g (float x, int64 n) => (float y, float z) { y = Identity(x)\n z = Identity(x) }", opset=11)
    x, n = program.graph.inputs
    collected = []
    for node, body, count in zip(list(program.graph), (doubled, counted), (None, n), strict=True):
        carried, numbers = loop(NodeBuilder(node, Editor(program), x.dtype), [x], body, count=count)
        numbers.shape = ir.Shape(["K" if count is None else "N"])
        node.replace_input_with(0, carried)
        collected.append(numbers)
    program.graph.outputs.extend(collected)
    onnx.checker.check_model(ir.serde.serialize_model(program), full_check=True)
    y, z, rounds, numbers = run(program, [torch.tensor(3.0), torch.tensor(4)])
    assert (y, z) == (192.0, 48.0)
    assert rounds.tolist() == [0, 1, 2, 3, 4, 5]
    assert numbers.tolist() == [0, 1, 2, 3]
    assert run(program, [torch.tensor(3.0), torch.tensor(0)])[1] == 3.0
    results = ONNXProgram(program)(torch.tensor(3.0), torch.tensor(4))  # with ONNX Runtime's optimizations
    assert [each.tolist() for each in results[2:]] == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3]]
