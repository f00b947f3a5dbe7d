"""The optimizer as a whole: on networks, and with passes switched off by name."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.weights import Weight, as_torch
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.optimize import PASSES, optimize
from tests.compare import assert_close
from tests.models.registry import CASES, ModelCase
from tests.passes.checking import check, model, run
from tools import pass_table


def case_named(name: str) -> ModelCase:
    """Returns the network of this name."""
    return next(case for case in CASES if case.name == name)


def test_names_are_unique() -> None:
    """A name switches off one pass."""
    names = [each.name for each in (*PASSES, *LEGALIZATIONS)]
    assert len(set(names)) == len(names)


def test_the_documentation_lists_all_passes_in_order() -> None:
    """The tables of docs/passes.md are those that ``python -m tools.pass_table`` writes from the docstrings."""
    text = pass_table.PAGE.read_text(encoding="utf-8")
    assert pass_table.page(text) == text


@pytest.mark.parametrize("name", ["resnet", "vit", "swin", "bert", "gpt2", "llama"])
def test_networks(name: str) -> None:
    """Outputs, their names and metadata stay; fewer nodes are left, and each has the name of its FX node."""
    case = case_named(name)
    program, inputs = case.export(optimize=False), case.example()
    want = program(*inputs.args, **inputs.kwargs)
    graph = program.model.graph
    names = [value.name for value in (*graph.inputs, *graph.outputs)]
    kinds = [dict(value.metadata_props) for value in (*graph.inputs, *graph.outputs)]
    count = len(graph)
    program.optimize()
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert len(graph) < count
    assert [value.name for value in (*graph.inputs, *graph.outputs)] == names
    assert [dict(value.metadata_props) for value in (*graph.inputs, *graph.outputs)] == kinds
    assert all(metadata.FX_NODE in node.metadata_props for node in graph)
    assert all(value.uses() or value.is_graph_output() for value in graph.initializers.values())
    assert_close(program(*inputs.args, **inputs.kwargs), want)


@pytest.mark.parametrize(
    ("name", "single", "gone"),
    [
        (
            "llama",
            {"RMSNormalization": 5, "RotaryEmbedding": 4, "Attention": 2, "Swish": 2},
            {"Neg", "Transpose", "Pow"},
        ),
        ("mistral", {"RMSNormalization": 5, "RotaryEmbedding": 4, "Attention": 2, "Swish": 2}, {"Neg", "Transpose"}),
        ("gpt2", {"LayerNormalization": 5, "Tanh": 2, "Attention": 2, "Split": 2}, {"Gelu", "Softmax"}),
        ("bert", {"LayerNormalization": 5, "Gelu": 2, "Attention": 2}, {"Transpose", "Softmax"}),
        ("t5", {"RMSNormalization": 12, "Attention": 6}, {"Softmax", "Pow"}),
        ("vit", {"LayerNormalization": 5, "Gelu": 2, "Attention": 2, "Split": 2}, {"Softmax"}),
    ],
)
def test_norms_attention_and_activations_are_fused(name: str, single: dict[str, int], gone: set[str]) -> None:
    """Each norm, attention and activation is one node, also if the model computes it from elementary operators."""
    case = case_named(name)
    module, other = case.build(), case.other()
    program = case.export(opset_version=24)
    found = Counter(node.op_type for node in program.model.graph)
    assert {op_type: found[op_type] for op_type in single} == single
    assert not gone & found.keys()
    with torch.no_grad():
        assert_close(program(*other.args, **other.kwargs), module(*other.args, **other.kwargs))


def test_weights_are_neither_read_nor_stored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT-2 ties its embedding to its last layer. The optimizer reads no weight and stores none twice."""
    program = case_named("gpt2").export(optimize=False)
    before = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())

    read = Weight._bytes

    def refuse(self: Weight) -> Any:
        if self.name in program.model.graph.initializers:
            raise AssertionError(f"{self.name} was read")
        return read(self)

    with monkeypatch.context() as patch:
        patch.setattr(Weight, "_bytes", refuse)
        optimize(program.model)
    after = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    assert after <= before + 1024  # shapes


def test_folded_weights_follow_new_weights() -> None:
    """After apply_weights, folded weights are computed from the new weights."""
    case = case_named("resnet")
    program, module, inputs = case.export(optimize=False), case.build(), case.example()
    program.optimize()
    state = {
        name: tensor * 1.5 if tensor.is_floating_point() else tensor for name, tensor in module.state_dict().items()
    }
    module.load_state_dict(state)
    program.apply_weights({name: tensor for name, tensor in state.items() if not name.endswith("num_batches_tracked")})
    with torch.no_grad():
        assert_close(program(*inputs.args), module(*inputs.args))


@pytest.mark.parametrize("name", [each.name for each in PASSES])
def test_each_pass_can_be_left_out(name: str) -> None:
    """Without this pass, the others still give the same results."""
    case = case_named("resnet")
    program, inputs = case.export(optimize=False), case.example()
    want = program(*inputs.args)
    optimize(program.model, without=[name])
    found = {node.op_type for node in program.model.graph}
    assert ("BatchNormalization" in found) == (name == "fold_batch_norm")
    assert_close(program(*inputs.args), want)


def test_unknown_name() -> None:
    """The error for an unknown pass lists the names."""
    program = model("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    with pytest.raises(ArgumentError, match=r"'fold_everything'.*evaluate_constants"):
        optimize(program, without=["fold_everything"])


def test_the_optimizer_is_idempotent() -> None:
    """A second run changes nothing."""
    program = case_named("bert").export(optimize=False).model
    optimize(program)
    first = [node.op_type for node in program.graph]
    optimize(program)
    assert [node.op_type for node in program.graph] == first


def test_overridable_initializers_are_not_folded() -> None:
    """The initializer of a graph input is only a default value; a caller may give another one at each run."""
    norm = {name: torch.rand(5) + 0.5 for name in ("scale", "shift", "mean", "var")}
    given = {"w": torch.randn(5, 4, 3, 3), **norm, "m": torch.randn(6, 3), "b": torch.randn(6), "o": torch.ones(3)}
    program = model("""g (float[N,4,6,6] x, float[N,3] u) => (float[N,5,6,6] y, float[N,6] z, float[N,3] v)
      <int64[8] pads = {0,0,1,1,0,0,1,1}, float half = {0.5}, float one = {1.0}, float root = {1.41421356237}> {
      p = Pad(x, pads)\n c = Conv(p, w)\n y = BatchNormalization(c, scale, shift, mean, var)
      t = Transpose<perm=[1,0]>(m)\n r = MatMul(u, t)\n z = Add(r, b)
      h = Mul(u, half)\n d = Div(u, root)\n e = Erf(d)\n f = Add(e, one)\n g = Mul(h, f)\n v = Mul(g, o)
    }""", given)  # fmt: skip
    for value in program.graph.initializers.values():
        program.graph.inputs.append(value)
    args = [torch.randn(2, 4, 6, 6), torch.randn(2, 3)]
    for value in program.graph.inputs[2:]:
        tensor = as_torch(value.const_value)
        args.append(torch.tensor([0, 0, 2, 0, 0, 0, 0, 2]) if value.name == "pads" else tensor + 1)
    want = run(program, args)
    optimize(program)
    assert [value.name for value in program.graph.inputs[2:]] == list(program.graph.initializers)
    for got, expected in zip(run(program, args), want, strict=True):
        torch.testing.assert_close(got, expected)


def test_quantized_models_keep_their_nodes() -> None:
    """QuantizeLinear and DequantizeLinear stay, also next to constants and Transposes."""
    program = model("""g (float[N,3] x) => (float[N,5] y) <float s = {0.1}, int8 z = {0}> {
      q = QuantizeLinear(x, s, z)\n d = DequantizeLinear(q, s, z)\n w = DequantizeLinear(w8, s, z)
      t = Transpose<perm=[1,0]>(w)\n m = MatMul(d, t)\n y = Add(m, b)
    }""", {"w8": torch.ones(5, 3, dtype=torch.int8), "b": torch.randn(5)})  # fmt: skip
    operators = ["QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "Gemm"]
    check(program, optimize, [torch.randn(2, 3)], operators)


def test_time_is_linear() -> None:
    """Eight times as many nodes take about eight times as long, not sixty-four times."""

    def chain(count: int) -> ir.Model:
        x = ir.Value(name="x", shape=ir.Shape(["n", 4]), type=ir.TensorType(ir.DataType.FLOAT))
        graph = ir.Graph([x], [], nodes=[], opset_imports={"": 20})
        for i in range(count):
            node = ir.node("Transpose" if i % 3 else "Relu", [x], {"perm": [1, 0]} if i % 3 else None)
            graph.append(node)
            x = node.outputs[0]
            x.shape, x.type = ir.Shape(["n", 4]), ir.TensorType(ir.DataType.FLOAT)
        graph.outputs.append(x)
        return ir.Model(graph, ir_version=9)

    def seconds(count: int) -> float:
        best = float("inf")
        for _ in range(3):
            program = chain(count)
            start = time.process_time()
            optimize(program)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(4000) < 24 * seconds(500)


class TwoConvolutions(nn.Module):
    def __init__(self, is_shared: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.is_shared = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), is_shared

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(self.conv(x))
        return (y, self.conv.weight * x.sum()) if self.is_shared else y


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_folded_weight_has_the_name_of_its_weight(is_shared: bool, tmp_path: Path) -> None:
    """Unless the model has the unfolded one too. New weights are still folded with the statistics."""
    model, x = TwoConvolutions(is_shared).eval(), torch.randn(2, 3, 8, 8)
    program = fx_onnx.export(model, (x,))
    names = set(program.model.graph.initializers)
    assert "conv.weight" in names
    assert is_shared or names == {"conv.weight", "conv.bias"}
    program.save(tmp_path / "model.onnx")
    assert names == set(ir.load(tmp_path / "model.onnx").graph.initializers)
    new = TwoConvolutions(is_shared).eval()
    new.norm.running_var.fill_(3.0)  # type: ignore[union-attr]
    program.apply_weights(new.state_dict())
    assert_close(program(x), new(x) if is_shared else (new(x),))
