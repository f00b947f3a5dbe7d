"""The edits that passes make, and the names, constants and metadata that the editor keeps consistent."""

import numpy as np
import onnx_ir as ir
import torch

from fx_onnx.onnx_model.weights import weight
from fx_onnx.passes.cleanup.identities import eliminate_identities
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rewriter import walk
from tests.passes.checking import check, model, origins


def test_replace_merges_metadata_and_removes_unused_producers() -> None:
    """The absorbed node goes, and its FX node is an origin of the new operation; a shared producer stays."""
    program = model("""g (float[N] x) => (float[N] y, float[N] z) {
      a = Abs(x)\n b = Neg(a)\n y = Relu(b)\n z = Exp(a)
    }""")
    _, neg, relu, _ = program.graph
    Editor(program).replace(relu, "Sqrt", [program.graph[0].outputs[0]], {}, absorbed=[neg])
    assert [node.op_type for node in program.graph] == ["Abs", "Sqrt", "Exp"]
    assert origins(program, "y") == {"%b", "%y"}
    assert relu.outputs[0].name == "y"


def test_replace_keeps_or_changes_attributes() -> None:
    """None keeps the attributes; a mapping replaces them, and leaves out those that are None."""
    program = model("g (float[N,3] x) => (float[N,3] y) { y = LeakyRelu<alpha=0.5>(x) }")
    editor, node = Editor(program), program.graph[0]
    editor.replace(node, "Elu", node.inputs)
    assert node.attributes["alpha"].value == 0.5
    editor.replace(node, "Softmax", node.inputs, {"axis": 1, "alpha": None})
    assert {name: attr.value for name, attr in node.attributes.items()} == {"axis": 1}


def test_a_long_chain_is_removed_without_recursion() -> None:
    """Thousands of dead nodes do not exceed Python's recursion limit."""
    lines = "\n".join(f"a{i + 1} = Relu(a{i})" for i in range(3000))
    program = model(f"g (float[N] x) => (float[N] y) {{ a0 = Relu(x)\n {lines}\n y = Neg(x) }}")
    editor = Editor(program)
    editor.remove_if_unused(program.graph[3000])
    assert [node.op_type for node in program.graph] == ["Neg"]


def test_new_names_and_constants() -> None:
    """A new name is unique in the graph and its subgraphs. Equal constants are shared; 0.0 and -0.0 are not equal."""
    program = model("""g (float[N] x, bool c) => (float[N] y) <float zero = {0.0}> {
      y = If(c)<then_branch = a () => (float[N] w_new) { w_new = Relu(x) },
            else_branch = b () => (float[N] v) { v = Neg(x) }>
    }""")
    editor, node = Editor(program), program.graph[0]
    assert editor.initializer(weight(torch.ones(2), "any"), "w_new").name == "w_new_1"
    assert editor.constant(np.array(0.0, dtype=np.float32), node) is program.graph.initializers["zero"]
    assert editor.constant(np.array(-0.0, dtype=np.float32), node) is not program.graph.initializers["zero"]
    assert editor.constant([1, 2], node) is editor.constant([1, 2], node)


def test_an_output_keeps_its_declared_shape() -> None:
    """The value that replaces a graph output takes the names of its dims."""
    program = model("g (float[N] x) => (float[N] y) { a = Relu(x)\n y = Identity(a) }")
    program.graph.outputs[0].shape = ir.Shape(["rows"])
    check(program, lambda each: walk(each, [eliminate_identities]), [torch.randn(2)], ["Relu"])
    assert dims(program.graph.outputs[0]) == ("rows",)


def test_replace_with_value_is_refused_where_a_name_would_be_lost() -> None:
    """A graph output cannot be a graph input or another output, whose name differs."""
    program = model(
        "g (float[N] x) => (float[N] y, float[N] z, float[N] u) { y = Abs(x)\n z = Identity(y)\n u = Identity(x) }"
    )
    editor = Editor(program)
    _, second, third = program.graph
    assert not editor.replace_with_value(second, second.inputs[0])
    assert not editor.replace_with_value(third, third.inputs[0])
    assert [value.name for value in program.graph.outputs] == ["y", "z", "u"]


def test_the_worklist_holds_a_node_once() -> None:
    """A node that is enqueued again while it waits is yielded once; after that it can be enqueued again."""
    program = model("g (float[N] x) => (float[N] y) { a = Abs(x)\n y = Neg(a) }")
    editor, nodes = Editor(program), list(program.graph)
    editor.enqueue([*nodes, *nodes])
    assert list(editor.worklist()) == nodes
    editor.enqueue(nodes[:1])
    assert list(editor.worklist()) == nodes[:1]


def test_insert() -> None:
    """A new node comes before a node or right after the producer of a value; after a graph input it comes first."""
    program = model("g (float[N] x) => (float[N] y) { a = Abs(x)\n y = Neg(a) }")
    editor, (absolute, neg) = Editor(program), program.graph
    x, a = program.graph.inputs[0], absolute.outputs[0]
    editor.insert_before(ir.node("Exp", [a]), neg)
    editor.insert_after(ir.node("Sqrt", [a]), a)
    editor.insert_after(ir.node("Relu", [x]), x)
    assert [node.op_type for node in program.graph] == ["Relu", "Abs", "Sqrt", "Exp", "Neg"]
    assert [node.op_type for node in editor.worklist()] == ["Exp", "Sqrt", "Relu"]
