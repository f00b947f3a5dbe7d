"""Scaled dot-product attention."""

import math
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import fx_onnx
from tests.harness import Case, b8, cases, check, f16, f32, f64
from tests.modules import FunctionModule

OPSETS = [20, 23, 24]
MASKED = (True, False, True, False, False, False, True, True, True, False, False, False)
INFINITE = tuple(0.5 if keep else -math.inf for keep in MASKED)
PLAIN = ["Mul", "Transpose", "MatMul", "Softmax", "MatMul"]
# The nodes that give zeros for queries whose keys are all masked. Layers with the same mask share all but the last two.
MASKED_QUERIES = ["Where", "ReduceSum", "Mul", "Where", "Clip", "Add", "Mul"]
q, k, v = f32(2, 4, 5, 8), f32(2, 4, 3, 8), f32(2, 4, 3, 6)


def attention(*args, opsets=OPSETS, **kwargs) -> Case:  # type: ignore[no-untyped-def]
    return Case(scaled_dot_product_attention, *args, opsets=opsets, **kwargs)


@cases(
    [
        attention(q, k, v, emits=["Attention"]),
        attention(q, k, v, opsets=[20], emits=PLAIN),
        attention(q, k, v, scale=0.3),
        attention(q, k, v, scale=1.0, opsets=[20], emits=PLAIN[1:]),
        attention(q, k, v, is_causal=True),
        attention(f32(2, 4, 3, 8), f32(2, 4, 5, 8), f32(2, 4, 5, 8), is_causal=True),
        attention(q, k, v, b8(5, 3, values=MASKED)),
        attention(q, k, v, b8(2, 1, 5, 3, values=MASKED)),
        attention(q, k, v, b8(2, 1, 1, 3, values=(True, False, True, False, False, False))),
        attention(q, k, v, b8(2, 4, 5, 3, values=MASKED)),
        attention(q, k, v, b8(5, 1)),
        attention(q, k, v, f32(5, 3)),
        attention(q, k, v, f32(5, 3, values=INFINITE)),
        attention(q, k, v, f32(1, 4, 5, 3, values=INFINITE)),
        attention(q, k, v, b8(5, 3), opsets=[20], emits=[*PLAIN, *MASKED_QUERIES]),
        attention(q, k, v, f32(5, 3), opsets=[20], emits=[*PLAIN, "Less", *MASKED_QUERIES]),
        attention(f32(2, 5, 8), f32(2, 3, 8), f32(2, 3, 6)),
        attention(f32(2, 5, 8), f32(2, 3, 8), f32(2, 3, 6), f32(2, 5, 3)),
        attention(f32(5, 8), f32(3, 8), f32(3, 6)),
        attention(f32(1, 2, 4, 5, 8), f32(1, 2, 4, 3, 8), f32(1, 2, 4, 3, 8)),
        attention(f32(2, 6, 5, 8), f32(2, 2, 3, 8), f32(2, 2, 3, 8), enable_gqa=True, dynamic=False),
        attention(f32(2, 6, 5, 8), f32(2, 1, 3, 8), f32(2, 1, 3, 8), opsets=[23, 24], emits=["Attention"]),
        attention(f32(2, 6, 5, 8), f32(2, 1, 3, 8), f32(2, 1, 3, 6), b8(2, 1, 5, 3), opsets=[20, 23]),
        attention(f32(2, 6, 5, 8), f32(2, 1, 3, 8), f32(2, 6, 3, 8)),
        attention(f32(2, 6, 5, 8), f32(2, 2, 3, 8), f32(2, 2, 3, 8), b8(5, 3), enable_gqa=True, dynamic=False),
        attention(f32(2, 6, 5, 8), f32(2, 2, 3, 8), f32(2, 2, 3, 8), b8(2, 6, 5, 3), enable_gqa=True, dynamic=False),
        attention(f16(2, 4, 5, 8), f16(2, 4, 3, 8), f16(2, 4, 3, 6), tolerance=1e-2),
        attention(f64(2, 4, 5, 8), f64(2, 4, 3, 8), f64(2, 4, 3, 6), opsets=[20]),
    ]
)
def test_attention(case: Case) -> None:
    check(case)


def test_layers_share_what_they_compute_of_their_mask() -> None:
    """The bias and the factor of a mask are computed once, without ReduceMax, Equal and IsNaN."""

    def layers(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return x

    x, mask = torch.randn(2, 3, 5, 4), torch.ones(2, 1, 5, 5, dtype=torch.bool)
    program = fx_onnx.export(FunctionModule(layers).eval(), (x, mask), opset_version=20, verbose=False)
    counts = Counter(node.op_type for node in program.model.graph)
    assert (counts["Softmax"], counts["Where"], counts["ReduceSum"], counts["Clip"]) == (3, 2, 1, 1)
    assert not {"ReduceMax", "Equal", "IsNaN"} & set(counts)


@pytest.mark.parametrize(("mask", "is_causal"), [(torch.tensor([[True, False], [False, False]]), False), (None, True)])
def test_the_bias_of_a_mask_is_finite(mask: torch.Tensor | None, is_causal: bool) -> None:
    """A quantizer gives a tensor with an infinite number an infinite scale."""
    x = torch.randn(1, 1, 2, 4)
    call = lambda x, mask: scaled_dot_product_attention(x, x, x, attn_mask=mask, is_causal=is_causal)  # noqa: E731
    model = fx_onnx.export(FunctionModule(call).eval(), (x, mask), opset_version=20, verbose=False).model_proto
    (add,) = (node for node in model.graph.node if node.op_type == "Add")
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in add.input if name not in constants)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {given.name: each.numpy() for given, each in zip(session.get_inputs(), (x, mask), strict=False)}
    _, *summands = session.run(None, feeds)
    summands += [constants[name] for name in add.input if name in constants]
    assert min(each.min() for each in summands) == np.finfo(np.float32).min  # not minus infinity
