"""The walk that rewrites share, and the edits they make."""

import numpy as np
import onnx_ir as ir
import torch

from fx_onnx.core.weights import weight
from fx_onnx.passes.cleanup.casts import MergeCasts
from fx_onnx.passes.cleanup.dead_code import EliminateDeadCode
from fx_onnx.passes.cleanup.identities import EliminateIdentities
from fx_onnx.passes.matchers import constant, dims, integers, same_shape, single_use, weight_of
from fx_onnx.passes.rewriter import Editor, apply, walk
from tests.passes.checking import check, model


def test_rewrites_see_each_others_results() -> None:
    """A Cast pair becomes visible only when what is between them goes."""
    program = model("""g (float[N] x) => (float[N] y) <double one = {1.0}> {
      a = Cast<to=11>(x)\n b = Identity(a)\n c = Cast<to=1>(b)\n y = Neg(c)
    }""")
    check(program, lambda each: walk(each, [MergeCasts(), EliminateIdentities()]), [torch.randn(2)], ["Neg"])


def test_functions_are_walked_but_not_what_depends_on_their_attributes() -> None:
    """A Cast to the dtype that the caller names stays."""
    program = model("""g (float[N] x) => (float[N] y) { y = local.f<kind=1>(x) }
    <domain: "local", opset_import: ["" : 20]>
    f <kind> (x) => (y) { a = Identity(x)\n b = Cast<to: int = @kind>(a)\n y = Cast<to: int = @kind>(b) }""")
    check(program, lambda each: walk(each, [MergeCasts(), EliminateIdentities()]), [torch.randn(2)], ["f"])
    [function] = program.functions.values()
    assert [node.op_type for node in function] == ["Cast", "Cast"]


def test_other_domains_are_left_alone() -> None:
    """A node of another domain may bear the name of an ONNX operator."""
    program = model("""g (float[N] x) => (float[N] y) { a = local.Identity(x)\n y = Neg(a) }
    <domain: "local", opset_import: ["" : 20]>
    Identity (x) => (y) { y = Relu(x) }""")
    check(program, lambda each: walk(each, [EliminateIdentities()]), [torch.randn(2)], ["Identity", "Neg"])


def test_long_chains() -> None:
    """Thousands of dead nodes in a row are no recursion."""
    lines = "\n".join(f"a{i + 1} = Relu(a{i})" for i in range(3000))
    program = model(f"g (float[N] x) => (float[N] y) {{ a0 = Relu(x)\n {lines}\n y = Neg(x) }}")
    editor = Editor(program)
    editor.drop(program.graph[3000])
    assert [node.op_type for node in program.graph] == ["Neg"]


def test_facts() -> None:
    """Constants are read, weights are not; dims compare by name."""
    program = model("""g (float[N,3] x, float[N,3] y, float[3] z) => (float[N,3] u) <int64[2] c = {1,2}> {
      u = Add(x, w)
    }""", {"w": torch.randn(3)})  # fmt: skip
    x, y, z = program.graph.inputs
    w, c = program.graph.initializers["w"], program.graph.initializers["c"]
    assert integers(c) == [1, 2] and constant(w) is None and weight_of(w) is w.const_value
    assert weight_of(x) is None and integers(None) is None and integers(w) is None
    assert dims(x) == ("N", 3) and same_shape(x, y) and not same_shape(x, z)
    x.shape = ir.Shape([None, 3])
    assert dims(x) is None and not same_shape(x, y)
    assert single_use(w) and not single_use(c) and not single_use(program.graph[0].outputs[0])


def test_names_and_constants_of_an_editor() -> None:
    """New names are new in the whole graph, bodies and all; equal constants are one, 0.0 and -0.0 are two."""
    program = model("""g (float[N] x, bool c) => (float[N] y) <float zero = {0.0}> {
      y = If(c)<then_branch = a () => (float[N] w_new) { w_new = Relu(x) },
            else_branch = b () => (float[N] v) { v = Neg(x) }>
    }""")
    editor, node = Editor(program), program.graph[0]
    assert editor.weight(weight(torch.ones(2), "any"), "w_new").name == "w_new_1"
    assert editor.constant(np.array(0.0, dtype=np.float32), node) is program.graph.initializers["zero"]
    assert editor.constant(np.array(-0.0, dtype=np.float32), node) is not program.graph.initializers["zero"]
    assert editor.constant([1, 2], node) is editor.constant([1, 2], node)


def test_an_output_keeps_its_shape() -> None:
    """What is returned in the place of another value has the dims that were promised of that."""
    program = model("g (float[N] x) => (float[N] y) { a = Relu(x)\n y = Identity(a) }")
    program.graph.outputs[0].shape = ir.Shape(["rows"])
    check(program, lambda each: walk(each, [EliminateIdentities()]), [torch.randn(2)], ["Relu"])
    assert dims(program.graph.outputs[0]) == ("rows",)


def test_neighbours_share_a_walk() -> None:
    """Rewrites on both sides of a pass of another kind do not wait for each other; those beside each other do."""
    text = """g (float[N] x) => (float[N] y) <double one = {1.0}> {
      a = Cast<to=11>(x)\n b = Identity(a)\n c = Cast<to=1>(b)\n y = Neg(c)
    }"""
    check(model(text), lambda each: apply(each, [MergeCasts(), EliminateIdentities()]), [torch.randn(2)], ["Neg"])
    parted = [MergeCasts(), EliminateDeadCode(), EliminateIdentities()]
    check(model(text), lambda each: apply(each, parted), [torch.randn(2)], ["Cast", "Cast", "Neg"])
