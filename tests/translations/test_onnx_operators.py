"""torch.onnx.ops: attention and rotary embedding as one node from opset 23 on, and any operator by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close
from tests.one_capture import OneCapture

Q, K, V = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8)
FLAT = torch.randn(2, 5, 32)


class Call(nn.Module):
    """Calls one function of torch.onnx.ops on its inputs and returns its first results."""

    def __init__(self, function: Any, results: int | None = None, **options: Any) -> None:
        super().__init__()
        self.function, self.results, self.options = function, results, options

    def forward(self, *args: Tensor) -> Any:
        results = self.function(*args, **self.options)
        return results if self.results is None else results[: self.results]


OPSETS = (20, 23)


def _check(module: nn.Module, args: tuple[Tensor, ...], opsets: Sequence[int] = OPSETS) -> list[list[str]]:
    """Returns the operators of the exports at each opset."""
    captured, result, found = OneCapture(module.eval(), args, verify=True), module(*args), []
    for opset in opsets:
        program = captured.export(opset_version=opset)
        assert_close(program(*args), result if isinstance(result, tuple) else (result,))
        found.append([node.op_type for node in program.model.graph])
    return found


ATTENTION = [
    pytest.param((Q, K, V), {}, id="plain"),
    pytest.param((Q, K, V), {"is_causal": True}, id="causal"),
    pytest.param((Q, K, V), {"scale": 0.5}, id="scale"),
    pytest.param((Q, K[:, :2], V[:, :2]), {}, id="grouped"),
    pytest.param((Q, K, V, torch.randn(5, 5)), {}, id="mask"),
    pytest.param((Q, K, V, torch.ones(5, 5, dtype=torch.bool).tril()), {}, id="bool mask"),
    pytest.param((Q, K, V), {"softcap": 2.0}, id="softcap"),
    pytest.param((FLAT, FLAT + 1, FLAT - 1), {"q_num_heads": 4, "kv_num_heads": 4}, id="three axes"),
]


@pytest.mark.parametrize(("args", "options"), ATTENTION)
def test_attention(args: tuple[Tensor, ...], options: dict[str, Any]) -> None:
    older, newer = _check(Call(torch.onnx.ops.attention, 1, **options), args)
    assert "Attention" not in older and "Attention" in newer


LOWEST = torch.full((5, 5), torch.finfo(torch.float32).min)


@pytest.mark.parametrize(
    ("args", "options", "differs"),
    [
        ((Q, K, V), {"is_causal": True, "softcap": 2.0}, True),
        ((Q, K, V, LOWEST), {"softcap": 2.0}, True),
        ((Q, K, V, LOWEST), {"scale": 0.5}, False),
    ],
)
def test_explicit_attention_is_one_node(args: tuple[Tensor, ...], options: dict[str, Any], differs: bool) -> None:
    """torch's eager form applies softcap after the mask, so it computes something else: a finding says so."""
    program = fx_onnx.export(Call(torch.onnx.ops.attention, 1, **options).eval(), args, opset_version=23)
    (node,) = program.model.graph
    assert node.op_type == "Attention"
    assert {name: node.attributes[name].value for name in options} == options
    assert [each.id.name for each in program.findings] == ["RESULTS_DIFFER"] * differs


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_a_past(causal: bool) -> None:
    """torch's causal mask starts at the first key, so that the results differ from ONNX's if there are past keys."""

    class Past(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Any:
            return torch.onnx.ops.attention(
                q, k, v, past_key=past_k, past_value=past_v, is_causal=causal
            )[:3]  # fmt: skip

    past = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 3, 8)
    args = (Q, K, V, *past)
    captured = OneCapture(Past().eval(), args)
    for opset in OPSETS:
        program = captured.export(opset_version=opset)
        if opset < 23 or not causal:
            assert_close(program(*args), Past()(*args))
        assert len(program.findings) == (opset >= 23 and causal)
        with_past = [node for node in program.model.graph if node.op_type == "Attention" and len(node.inputs) == 6]
        assert bool(with_past) == (opset >= 23)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_additional_results_of_attention(mode: int) -> None:
    module = Call(torch.onnx.ops.attention, None, qk_matmul_output_mode=mode)
    _check(module, (Q, K, V))
    # ONNX's scores after softcap have no mask, and torch's have.
    _check(module, (Q, K, V, torch.randn(5, 5)), OPSETS if mode != 1 else OPSETS[:1])


POSITIONS = torch.arange(5).repeat(2, 1)
ROTARY = [
    pytest.param((Q, torch.randn(2, 5, 4), torch.randn(2, 5, 4)), {}, id="plain"),
    pytest.param((Q, torch.randn(9, 4), torch.randn(9, 4), POSITIONS), {}, id="positions"),
    pytest.param((Q, torch.randn(9, 4), torch.randn(9, 4), POSITIONS), {"interleaved": True}, id="interleaved"),
    pytest.param((FLAT, torch.randn(9, 4), torch.randn(9, 4), POSITIONS), {"num_heads": 4}, id="three axes"),
    pytest.param((Q, torch.randn(9, 2), torch.randn(9, 2), POSITIONS), {"rotary_embedding_dim": 4}, id="partial"),
]


@pytest.mark.parametrize(("args", "options"), ROTARY)
def test_rotary_embedding(args: tuple[Tensor, ...], options: dict[str, Any]) -> None:
    older, newer = _check(Call(torch.onnx.ops.rotary_embedding, **options), args)
    assert "RotaryEmbedding" not in older and "RotaryEmbedding" in newer


def test_dynamic_batch_and_sequence() -> None:
    class Both(nn.Module):
        def forward(self, q: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> Tensor:
            q = torch.onnx.ops.rotary_embedding(q, cos, sin, positions)
            return torch.onnx.ops.attention(q, q, q)[0]

    def inputs(batch: int, length: int) -> tuple[Tensor, ...]:
        return torch.randn(batch, 4, length, 8), torch.randn(9, 4), torch.randn(9, 4), torch.ones(batch, length).long()

    shapes = ({0: "batch", 2: "length"}, {}, {}, {0: "batch", 1: "length"})
    captured = OneCapture(Both().eval(), inputs(2, 5), dynamic_shapes=shapes)
    for opset in OPSETS:
        program = captured.export(opset_version=opset)
        for args in (inputs(2, 5), inputs(3, 7)):
            assert_close(program(*args), Both()(*args))
        assert [dim if isinstance(dim, int) else dim.value for dim in program.model.graph.outputs[0].shape] == [
            "batch", 4, "length", 8
        ]  # fmt: skip


# ---------------------------------------------------------------- any operator

X = torch.randn(2, 3)


def test_symbolic_in_any_domain() -> None:
    class Symbolic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            attributes = {
                "i": 1, "f": 0.5, "s": "text", "ints": [1, 2, 3], "more": [4], "floats": [1.0, 2], "yes": True,
                "strings": ["a", "b"],
            }  # fmt: skip
            return torch.onnx.ops.symbolic(
                "com.example::Thing", (x, None, x), attributes, dtype=x.dtype, shape=(x.shape[0], 7), version=3,
                metadata_props={"key": "value"},
            ).relu()  # fmt: skip

    program = fx_onnx.export(Symbolic().eval(), (X,), dynamic_shapes=({0: "n"},))
    node, relu = program.model.graph
    assert (node.domain, node.op_type, relu.op_type) == ("com.example", "Thing", "Relu")
    assert program.model.graph.opset_imports["com.example"] == 3
    assert node.metadata_props["key"] == "value"
    assert [value is None for value in node.inputs] == [False, True, False]
    found = {
        name: (a.type.name, list(a.value) if "S" in a.type.name[-1] else a.value) for name, a in node.attributes.items()
    }
    assert found == {
        "i": ("INT", 1), "f": ("FLOAT", 0.5), "s": ("STRING", "text"), "ints": ("INTS", [1, 2, 3]),
        "more": ("INTS", [4]), "floats": ("FLOATS", [1.0, 2.0]), "strings": ("STRINGS", ["a", "b"]), "yes": ("INT", 1),
    }  # fmt: skip
    assert str(node.outputs[0].shape) == "[n,7]"


def test_symbolic_operators_run() -> None:
    class Symbolic(nn.Module):
        def forward(self, x: Tensor) -> Any:
            gelu = torch.onnx.ops.symbolic("com.microsoft::Gelu", (x,), dtype=1, shape=x.shape)
            shape, dtypes = (x.shape[0], 2), (torch.float32, torch.int64)
            top, where = torch.onnx.ops.symbolic_multi_out(
                "TopK", (x, torch.tensor([2])), {"axis": -1}, dtypes=dtypes, shapes=(shape, shape)
            )
            return gelu + 1, top, where

    program = fx_onnx.export(Symbolic().eval(), (X,), dynamic_shapes=({0: "n"},))
    larger = torch.randn(5, 3)
    assert_close(program(larger), (torch.nn.functional.gelu(larger) + 1, *larger.topk(2)))


@pytest.mark.parametrize("name", ["TopK", "com.microsoft::Gelu"])
def test_an_operator_without_results_is_refused(name: str) -> None:
    class Symbolic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.onnx.ops.symbolic_multi_out(name, (x,), dtypes=(), shapes=())
            return x + 1

    with pytest.raises(
        fx_onnx.OnnxExporterError, match=r"has at least one result, and (TopK|Gelu) is declared with none"
    ):
        fx_onnx.export(Symbolic().eval(), (X,))


class Quantizes(nn.Module):
    """Rounds to 4 bits; one result goes through an operator of torch, which computes with bytes."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        step, symbolic = torch.tensor(0.5), torch.onnx.ops.symbolic
        signed = symbolic("QuantizeLinear", (x, step), {"output_dtype": 22}, dtype=22, shape=x.shape)
        (unsigned,) = torch.onnx.ops.symbolic_multi_out(
            "QuantizeLinear", (x, step), {"output_dtype": 21}, dtypes=(21,), shapes=(x.shape,)
        )
        values = symbolic("DequantizeLinear", (signed, step), dtype=x.dtype, shape=x.shape)
        return signed, unsigned, values, unsigned + 1


def test_4_bit_results() -> None:
    x = torch.tensor([[-1.0, -4.0, 3.5], [0.5, 2.0, 1.0]])
    program = fx_onnx.export(Quantizes().eval(), (x,), dynamic_shapes=({0: "n"},), opset_version=21)
    assert [output.dtype.name for output in program.model.graph.outputs] == ["INT4", "UINT4", "FLOAT", "UINT8"]
    signed, unsigned, values, sums = program(torch.cat([x, -x[:1]]))
    assert_close(signed, torch.tensor([[-2, -8, 7], [1, 4, 2], [2, 7, -7]], dtype=torch.int8))
    assert_close(unsigned, torch.tensor([[0, 0, 7], [1, 4, 2], [2, 8, 0]], dtype=torch.uint8))
    assert_close(values, signed * 0.5)
    assert_close(sums, unsigned + 1)


def test_an_operator_of_another_domain_has_any_dtype() -> None:
    class Symbolic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.onnx.ops.symbolic("com.example::Thing", (x,), dtype=22, shape=x.shape)

    model = fx_onnx.export(Symbolic().eval(), (torch.randn(3),), opset_version=18).model
    assert (model.graph.outputs[0].dtype, model.ir_version) == (ir.DataType.INT4, 10)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Cast", {"dtype": 22, "attrs": {"to": 22}}, "is int4, which ONNX has from opset 21 on"),
        ("Nothing", {}, "has no operator Nothing"),
        ("Relu", {"attrs": {"alpha": 1.0}}, "Relu of opset 20 has no attribute 'alpha'"),
        ("Relu", {"shape": [3]}, r"returns float\[2, 3\] where the operator returns float\[3\]"),
        ("GridSample", {"version": 16}, "GridSample of opset 16 means something else in opset 20"),
        ("Relu", {"dtype": torch.int64}, "returns float.* where the operator returns int64"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], message: str) -> None:
    class Symbolic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.onnx.ops.symbolic(name, (x,), **{"dtype": x.dtype, "shape": x.shape, **options})

    with pytest.raises(fx_onnx.TranslationError, match=message):
        fx_onnx.export(Symbolic().eval(), (X,))
