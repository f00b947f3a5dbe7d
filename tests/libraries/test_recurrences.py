"""Recurrences at lengths within, at and beyond a chunk; their own Python code is the reference."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
import fx_onnx.torch_internals.custom_ops
from tests.compare import assert_close
from tests.one_capture import OneCapture

OPERATORS: Any = torch.ops.fx_onnx
BATCH, GROUPS, HEADS, DEPTH, WIDTH = 2, 2, 4, 8, 4


class Call(nn.Module):
    """Calls an operator with tensors, then with a number."""

    def __init__(self, operator: Any, *numbers: float) -> None:
        super().__init__()
        self.operator, self.numbers = operator, numbers

    def forward(self, *tensors: Tensor | None) -> Any:
        return self.operator(*tensors, *self.numbers)


def attention(tokens: int, by_channel: bool, beta: bool, equal_keys: bool = False) -> tuple[Tensor | None, ...]:
    """Returns the arguments of a linear attention; equal keys with a beta of 1 are the hardest to invert."""
    torch.manual_seed(tokens)
    query, key = torch.randn(2, BATCH, tokens, GROUPS, DEPTH)
    key = nn.functional.normalize(key[:, :1].expand(-1, tokens, -1, -1) if equal_keys else key, dim=-1)
    value = torch.randn(BATCH, tokens, HEADS, WIDTH)
    decay = -torch.rand(BATCH, tokens, HEADS, *([DEPTH] if by_channel else [])) * (0.01 if equal_keys else 3)
    weights = torch.ones(BATCH, tokens, HEADS) if equal_keys else torch.rand(BATCH, tokens, HEADS)
    return query, key, value, decay, weights if beta else None, torch.randn(BATCH, HEADS, DEPTH, WIDTH)


@pytest.mark.parametrize("beta", [True, False], ids=["delta", "gated"])
@pytest.mark.parametrize("by_channel", [True, False], ids=["channels", "heads"])
def test_linear_attention(by_channel: bool, beta: bool) -> None:
    module, example = Call(OPERATORS.linear_attention, 0.5).eval(), attention(6, by_channel, beta)
    shapes = [None if each is None else {0: "batch", 1: "token"} for each in example[:5]]
    captured = OneCapture(module, example, dynamic_shapes=((*shapes, {0: "batch"}),))
    for opset in (18, 20, 27):
        program = captured.export(opset_version=opset)
        assert ("LinearAttention" in [node.op_type for node in program.model.graph]) == (opset == 27)
        for tokens in (1, 2, 16, 17, 31, 32, 33, 64, 65, 129, 300) if opset < 27 else (1, 33):
            given = attention(tokens, by_channel, beta, equal_keys=tokens == 65)
            assert_close(program(*(each for each in given if each is not None)), module(*given), 1e-5)


@pytest.mark.parametrize("tokens", [1, 40])
def test_linear_attention_of_a_static_length(tokens: int) -> None:
    module, example = Call(OPERATORS.linear_attention, 1.0).eval(), attention(tokens, False, True)
    program = fx_onnx.export(module, example)
    assert_close(program(*example), module(*example), 1e-5)


@pytest.mark.parametrize("by_channel", [True, False], ids=["channels", "heads"])
def test_decays_after_a_large_one_keep_their_digits(by_channel: bool) -> None:
    module, (query, key, value, decay, *rest) = Call(OPERATORS.linear_attention, 1.0), attention(40, by_channel, True)
    example = query, key, value, torch.where(decay < -2.5, -1000.0, 0.01 * decay), *rest
    assert_close(fx_onnx.export(module.eval(), example)(*example), module(*example), 1e-5)


def test_a_linear_attention_is_one_scan() -> None:
    program = fx_onnx.export(Call(OPERATORS.linear_attention, 0.5).eval(), attention(300, False, True))
    operators = [node.op_type for node in program.model.graph.all_nodes()]
    assert operators.count("Scan") == 1
    assert len(operators) <= 120


@pytest.mark.parametrize("beta", [True, False], ids=["delta", "gated"])
@pytest.mark.parametrize("by_channel", [True, False], ids=["channels", "heads"])
def test_the_runtime_has_a_linear_attention(by_channel: bool, beta: bool) -> None:
    module, example = Call(OPERATORS.linear_attention, 0.5).eval(), attention(6, by_channel, beta)
    shapes = [None if each is None else {0: "batch", 1: "token"} for each in example[:5]]
    program = fx_onnx.export(
        module, example, dynamic_shapes=((*shapes, {0: "batch"}),), target="onnxruntime", verbose=False
    )
    assert [node.op_type for node in program.model.graph if node.domain] == ["LinearAttention"]
    for tokens in (1, 65):
        given = attention(tokens, by_channel, beta)
        assert_close(program(*(each for each in given if each is not None)), module(*given), 1e-5)


@pytest.mark.parametrize("bias", [torch.randn(6), None], ids=["bias", "no bias"])
@pytest.mark.parametrize("past", [torch.randn(3, 6, 3), None], ids=["past", "no past"])
def test_causal_convolution(bias: Tensor | None, past: Tensor | None) -> None:
    module, weight = Call(OPERATORS.causal_conv1d).eval(), torch.randn(6, 4)
    shapes = (({0: "batch", 2: "length"}, None, None, None if past is None else {0: "batch"}),)
    example = torch.randn(3, 6, 9), weight, bias, past
    captured = OneCapture(module, example, dynamic_shapes=shapes)
    for opset, operator in ((20, "Conv"), (27, "CausalConvWithState")):
        program = captured.export(opset_version=opset)
        assert operator in [node.op_type for node in program.model.graph.all_nodes()]
        for length in (1, 2, 40):
            given = torch.randn(3, 6, length), weight, bias, past
            assert_close(program(*(each for each in given if each is not None)), module(*given), 1e-5)


@pytest.mark.parametrize(("length", "operator"), [(1, "ReduceSum"), (2, "Conv")])
def test_causal_convolution_of_a_static_length(length: int, operator: str) -> None:
    module, given = Call(OPERATORS.causal_conv1d).eval(), (torch.randn(2, 6, length), torch.randn(6, 4), torch.randn(6))
    past = torch.randn(2, 6, 3)
    program = fx_onnx.export(module, (*given, past))
    assert operator in [node.op_type for node in program.model.graph]
    assert_close(program(*given, past), module(*given, past), 1e-5)


def scan(tokens: int) -> tuple[Tensor, ...]:
    """Returns the arguments of a selective scan."""
    torch.manual_seed(tokens)
    parts = torch.randn(BATCH, 6, tokens), torch.rand(BATCH, 6, tokens), -torch.rand(6, 4)
    return *parts, *torch.randn(2, BATCH, 4, tokens), torch.randn(BATCH, 6, 4)


def test_selective_scan() -> None:
    module, axes = Call(OPERATORS.selective_scan).eval(), {0: "batch", 2: "token"}
    shapes = ((axes, axes, None, axes, axes, {0: "batch"}),)
    program = fx_onnx.export(module, scan(6), dynamic_shapes=shapes)
    for tokens in (1, 2, 65):
        assert_close(program(*scan(tokens)), module(*scan(tokens)), 1e-5)


def rwkv(tokens: int) -> tuple[Tensor, ...]:
    """Returns the arguments of RWKV's attention from a state of some tokens."""
    torch.manual_seed(tokens)
    states = torch.randn(BATCH, 6), torch.rand(BATCH, 6), torch.randn(BATCH, 6)
    return torch.rand(6), torch.randn(6), *torch.randn(2, BATCH, tokens, 6), *states


def test_rwkv() -> None:
    module, axes, batch = Call(OPERATORS.rwkv).eval(), {0: "batch", 1: "token"}, {0: "batch"}
    program = fx_onnx.export(module, rwkv(6), dynamic_shapes=((None, None, axes, axes, batch, batch, batch),))
    for tokens in (1, 2, 65):
        assert_close(program(*rwkv(tokens)), module(*rwkv(tokens)), 1e-5)
