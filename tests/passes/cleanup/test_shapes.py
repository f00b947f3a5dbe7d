"""Cleanups of views, Transposes, and reads of all positions of a tensor."""

from collections.abc import Callable

import onnx_ir as ir
import pytest
import torch
from torch import Tensor

import fx_onnx
from fx_onnx.onnx_model import metadata
from fx_onnx.passes.cleanup.shapes import eliminate_trivial_moves, merge_reshapes, merge_transposes, split_selects
from tests.passes.checking import check, model, origins


def test_reshape_of_reshape() -> None:
    """Only the last shape matters; one dynamic dim is inferred."""
    program = model("""g (float[N,6] x) => (float[N,3,2] y) <int64[3] s = {-1,2,3}, int64[3] t = {-1,3,2}> {
      a = Reshape(x, s)\n y = Reshape(a, t)
    }""")
    check(program, merge_reshapes, [torch.randn(4, 6)], ["Reshape"])
    assert origins(program, "y") == {"%a", "%y"}


def test_two_dynamic_sizes() -> None:
    """Dims that keep their place are copied; one that moves is inferred."""
    program = model("""g (float[N,S,6] x) => (float[N,S,3,2] y) <int64[1] i = {0}, int64[4] t = {0,0,3,2}> {
      a = Unsqueeze(x, i)\n b = Squeeze(a, i)\n y = Reshape(b, t)
    }""")
    check(program, merge_reshapes, [torch.randn(4, 5, 6)], ["Reshape"])


@pytest.mark.parametrize("inverse", ["b = Squeeze(a, i)", "b = Reshape(a, s)"])
def test_a_view_and_its_inverse_cancel(inverse: str) -> None:
    """No view is left between x and the Relu."""
    program = model(f"""g (float[2,6] x) => (float[2,6] y) <int64[1] i = {{1}}, int64[2] s = {{2,6}}> {{
      a = Unsqueeze(x, i)\n {inverse}\n y = Relu(b)
    }}""")
    check(program, merge_reshapes, [torch.randn(2, 6)], ["Relu"])


@pytest.mark.parametrize(
    "move",
    ["Flatten(x)", "Reshape(x, same)", "Transpose<perm=[0,1]>(x)", "Expand(x, size)", "Slice(x, i, large)",
     "Slice(x, i, large, i, one)"],
)  # fmt: skip
def test_a_move_that_keeps_each_place(move: str) -> None:
    program = model(f"""g (float[N,6] x) => (float[N,6] y) <int64[2] same = {{-1,6}}, int64[2] size = {{1,6}},
    int64[1] i = {{0}}, int64[1] large = {{1000}}, int64[1] one = {{1}}> {{
      a = {move}\n y = Relu(a)
    }}""")
    program.graph[0].outputs[0].shape = program.graph.inputs[0].shape
    check(program, eliminate_trivial_moves, [torch.randn(2, 6)], ["Relu"])


@pytest.mark.parametrize(
    "move", ["Transpose(x)", "Slice(x, last, first, i, minus)", "Slice(x, i, large, i, step)", "Expand(x, wide)"]
)
def test_a_move_of_elements_stays(move: str) -> None:
    """Another permutation, a reversal, steps that are not known, and another shape."""
    program = model(f"""g (float[3,3] x, int64[1] step) => (y) <int64[1] i = {{0}}, int64[1] large = {{1000}},
    int64[1] last = {{-1}}, int64[1] first = {{-100}}, int64[1] minus = {{-1}}, int64[3] wide = {{2,3,3}}> {{
      y = {move}
    }}""")
    if "wide" not in move:
        program.graph[0].outputs[0].shape = program.graph.inputs[0].shape
    assert not eliminate_trivial_moves(program).modified


def test_a_view_with_another_consumer_stays() -> None:
    """Merging would not save a node, because the first view has another consumer."""
    program = model("""g (float[N,6] x) => (float[N,3,2] y, float[N,2,3] z)
    <int64[3] s = {-1,2,3}, int64[3] t = {-1,3,2}> {
      a = Reshape(x, s)\n y = Reshape(a, t)\n z = Relu(a)
    }""")
    check(program, merge_reshapes, [torch.randn(4, 6)], ["Reshape", "Reshape", "Relu"])


def test_empty_and_unknown_sizes_are_left_alone() -> None:
    """A static 0 beside a dynamic size; sizes that are known at run time only."""
    program = model("""g (float[N,0] x, int64[2] s) => (float[0,N] y, float[P,Q] z) <int64[1] i = {0}> {
      a = Unsqueeze(x, i)\n b = Squeeze(a, i)\n y = Transpose(b)
      c = Unsqueeze(x, i)\n z = Reshape<allowzero=1>(c, s)
    }""")
    inputs = [torch.randn(2, 0), torch.tensor([0, 7])]
    check(program, merge_reshapes, inputs, ["Transpose", "Unsqueeze", "Reshape"])


@pytest.mark.parametrize(
    ("dim", "data_dependent", "merged"),
    [("u0", {"u0"}, False), ("u1", {"u0"}, True), ("n", set(), True), ("n", None, False)],
)
def test_a_size_is_not_inferred_beside_a_data_dependent_one(
    dim: str, data_dependent: set[str] | None, merged: bool
) -> None:
    """Reshape cannot infer -1 of an empty tensor. The model records which dims may be 0; the names do not show it."""
    program = model(f"""g (float[{dim},3,W] x) => (float[{dim},1,3,1,W] y) <int64[1] i = {{1}}, int64[1] j = {{3}}> {{
      a = Unsqueeze(x, i)\n y = Unsqueeze(a, j)
    }}""")
    if data_dependent is not None:
        program.meta[metadata.DATA_DEPENDENT_DIMS] = frozenset(data_dependent)
    inputs = [torch.randn(4 if merged else 0, 3, 5)]
    check(program, merge_reshapes, inputs, ["Reshape"] if merged else ["Unsqueeze", "Unsqueeze"])


def test_inside_a_function() -> None:
    """A function has no initializers: the new shape is a Constant node in it."""
    program = model("""g (float[2,6] x) => (float[3,4] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 20]>
    f (x) => (y) {
      s = Constant<value = int64[2] {4,3}>()\n t = Constant<value = int64[2] {3,4}>()
      a = Reshape(x, s)\n y = Reshape(a, t)
    }""")
    [function] = program.functions.values()
    function[3].outputs[0].shape = ir.Shape([3, 4])
    check(program, merge_reshapes, [torch.randn(2, 6)], ["f"])
    assert [node.op_type for node in function].count("Reshape") == 1


def test_merged() -> None:
    """Two permutations are composed."""
    program = model("""g (float[N,3,4] x) => (float[4,N,3] y) {
      a = Transpose<perm=[1,2,0]>(x)\n y = Transpose<perm=[1,2,0]>(a)
    }""")
    check(program, merge_transposes, [torch.randn(2, 3, 4)], ["Transpose"])
    assert origins(program, "y") == {"%a", "%y"}


def test_cancelled() -> None:
    """A permutation and its inverse cancel, also the default one. Another consumer keeps the first Transpose."""
    program = model("""g (float[N,3] x) => (float[N,3] y, float[3,N] z) {
      a = Transpose(x)\n b = Transpose<perm=[1,0]>(a)\n y = Relu(b)\n z = Relu(a)
    }""")
    check(program, merge_transposes, [torch.randn(2, 3)], ["Transpose", "Relu", "Relu"])


def test_an_output_is_not_replaced_by_an_input() -> None:
    """One node stays, because a graph output cannot be a graph input."""
    program = model("g (float[N,3] x) => (float[N,3] y) { a = Transpose(x)\n y = Transpose(a) }")
    check(program, merge_transposes, [torch.randn(2, 3)], ["Identity"])


Read = Callable[[Tensor, Tensor, Tensor], Tensor]


class Module(torch.nn.Module):
    def __init__(self, read: Read) -> None:
        super().__init__()
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        return self.read(x, torch.arange(x.size(0)), torch.arange(x.size(1)))


def operators(read: Read) -> set[str]:
    """Exports the read with dynamic dims, compares it at another size, and returns the operators."""
    module = Module(read).eval()
    program = fx_onnx.export(
        module, (torch.randn(3, 4, 2),), dynamic_shapes=({0: "batch", 1: "sequence"},), verbose=False
    )
    other = torch.randn(5, 3, 2)
    assert torch.equal(program(other)[0], module(other))
    return {node.op_type for node in program.model.graph}


def test_all_positions() -> None:
    assert operators(lambda x, i, j: x[i[:, None, None], j]) == {"Unsqueeze"}
    assert operators(lambda x, i, j: x[i[:, None, None, None], j[None, None, :, None]]) == {"Unsqueeze"}
    assert "GatherND" not in operators(lambda x, i, j: x[i[:, None], j].relu())


@pytest.mark.parametrize(
    "read",
    [
        lambda x, i, j: x[i[None, :], j[:, None]],  # permuted
        lambda x, i, j: x[i[:, None], j + 0 * i.size(0) - 1],  # begins at -1
        lambda x, i, j: x[i[:, None], torch.arange(1, x.size(1))],
        lambda x, i, j: x[i[:, None], torch.arange(0, x.size(1), 2)],
        lambda x, i, j: x[i[:, None, None].expand(-1, 2, -1), j],  # repeated
    ],
)
def test_declined(read: Read) -> None:
    assert "GatherND" in operators(read)


X = torch.randn(2, 3, 4)
CONSTANTS = "<int64 i = {0}, int64 j = {1}, int64 k = {-1}, int64[1] one = {1}>"


def graph(reads: str, outputs: str = "float[N,4] a, float[N,4] b, float[N,4] c") -> str:
    return f"g (float[N,3,4] x) => ({outputs}) {CONSTANTS} {{ {reads} }}"


READS = "a = Gather<axis = 1>(x, i)\n b = Gather<axis = 1>(x, j)\n c = Gather<axis = -2>(x, k)"


def test_all_elements() -> None:
    """Indices may be negative, and several reads may have the same index."""
    program = model(graph(READS))
    check(program, split_selects, [X], ["Split", "Squeeze", "Squeeze", "Squeeze"])
    assert origins(program, "b") == {"%b"}
    outputs = "float[N,4] a, float[N,4] b, float[N,4] c, float[N,4] d"
    program = model(graph(READS + "\n d = Gather<axis = 1>(x, i)", outputs))
    check(program, split_selects, [X], ["Split", *["Squeeze"] * 4])


@pytest.mark.parametrize(
    "reads",
    [
        READS.replace("(x, k)", "(x, j)"),  # not all elements
        READS.replace("axis = 1>(x, j)", "axis = 0>(x, j)"),  # another axis
        "s = Relu(x)\n" + READS.replace("(x, j)", "(s, j)"),  # another tensor
        READS.replace("b = Gather<axis = 1>(x, j)", "e = Gather<axis = 1>(x, one)\n b = Squeeze(e, one)"),  # 1-d index
    ],
)
def test_declined_selects(reads: str) -> None:
    assert not split_selects(model(graph(reads, "float[N,4] a, float b, float[N,4] c"))).modified
