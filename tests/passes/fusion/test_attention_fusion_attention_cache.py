"""Folding of the cache of keys and values into Attention."""

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.passes.fusion.attention_fusion import fold_cache
from tests.compare import assert_close
from tests.one_capture import OneCapture
from tests.passes.checking import check, model, origins

INPUTS = "float[N,4,L,3] q, float[N,2,L,3] k, float[N,2,L,5] v, float[N,2,P,3] pk, float[N,2,P,5] pv"
KNOWN = "<float[N,2,S,3] a, float[N,2,S,5] b>"
RESULTS = "float[N,4,L,5] y, float[N,2,S,3] a, float[N,2,S,5] b"
JOINED = "a = Concat<axis=2>(pk, k)\n b = Concat<axis=-2>(pv, v)\n"
ARGS = [torch.randn(2, *size) for size in ((4, 3, 3), (2, 3, 3), (2, 3, 5), (2, 6, 3), (2, 6, 5))]


@pytest.mark.parametrize("mask", ["", ", m"])
def test_the_graph_returns_the_cache(mask: str) -> None:
    """The Concats become results of Attention with their names."""
    program = model(f"g ({INPUTS}, bool[L,S] m) => ({RESULTS}) {{ {JOINED} y = Attention(q, a, b{mask}) }}", opset=23)
    check(program, fold_cache, [*ARGS, torch.ones(3, 9, dtype=torch.bool).tril(2)], ["Attention"])
    assert [value.name for value in program.graph[0].outputs] == ["y", "a", "b"]
    assert origins(program, "y") == {"%a", "%b", "%y"}


def test_the_graph_returns_a_part_of_the_cache() -> None:
    """A sliding window returns the last positions. The Slice of the keys is before the Attention, and is moved."""
    program = model(f"""g ({INPUTS}) => (float[N,4,L,5] y, float[N,2,W,3] c, float[N,2,S,5] b)
      <int64[1] first = {{-4}}, int64[1] end = {{99}}, int64[1] two = {{2}}, float[N,2,S,3] a> {{
      a = Concat<axis=2>(pk, k)\n c = Slice(a, first, end, two)\n b = Concat<axis=2>(pv, v)\n y = Attention(q, a, b)
    }}""", opset=23)  # fmt: skip
    check(program, fold_cache, ARGS, ["Attention", "Slice"])


@pytest.mark.parametrize(
    ("results", "text"),
    [
        (RESULTS, f"{JOINED} y = Attention<is_causal=1>(q, a, b)"),
        ("float[N,4,L,5] y, float[N,2,S,3] a", f"{JOINED} y = Attention(q, a, b)"),
        (RESULTS, f"{JOINED} s = ReduceSum(a)\n r = Add(q, s)\n y = Attention(r, a, b)"),
        (RESULTS, "a = Concat<axis=2>(pk, k)\n e = Neg(pv)\n b = Concat<axis=2>(e, v, e)\n y = Attention(q, a, b)"),
        (RESULTS, f"{JOINED} y, c, d = Attention(q, a, b)"),
    ],
)
def test_declined(results: str, text: str) -> None:
    """Causal attention, values that no one returns, another consumer, three parts, and an Attention with a cache."""
    program = model(f"g ({INPUTS}) => ({results}) {KNOWN} {{ {text} }}", opset=23)
    assert not fold_cache(program).modified


def test_lengths_that_differ() -> None:
    """Attention needs as many past keys as past values."""
    inputs = INPUTS.replace("P,5", "O,5")
    program = model(f"g ({inputs}) => ({RESULTS}) {{ {JOINED} y = Attention(q, a, b) }}", opset=23)
    assert not fold_cache(program).modified


class Decoder(nn.Module):
    """Attention of new tokens to a past and to themselves, in the layout of transformers."""

    def forward(self, x: Tensor, past_key: Tensor, past_value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x is (batch, length, 24): six queries, three keys and three values of size 2."""
        q, k, v = (each.unflatten(-1, (-1, 2)).transpose(1, 2) for each in x.split((12, 6, 6), -1))
        key, value = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
        out = nn.functional.scaled_dot_product_attention(q, key, value, mask, enable_gqa=True)
        return out.transpose(1, 2).flatten(2), key, value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_go_in_and_out(dtype: torch.dtype) -> None:
    """With dynamic sizes nothing is left but the split of the input and Attention; an empty past prefills."""
    module = Decoder().eval()

    def arguments(batch: int, length: int, past: int) -> tuple[Tensor, ...]:
        keep = torch.rand(batch, 1, length, past + length) < 0.7
        return (*(torch.randn(batch, *size).to(dtype) for size in ((length, 24), (3, past, 2), (3, past, 2))), keep)

    shapes = (
        {0: "batch", 1: "length"},
        {0: "batch", 2: "past"},
        {0: "batch", 2: "past"},
        {0: "batch", 2: "length", 3: "total"},
    )
    captured = OneCapture(module, arguments(2, 4, 5), dynamic_shapes=shapes)
    for opset in (23, 24):
        program = captured.export(opset_version=opset)
        found = [node.op_type for node in program.model.graph]
        assert [each for each in found if each in ("Attention", "Concat", "Transpose", "Reshape")] == ["Attention"]
        for sizes in ((2, 4, 5), (1, 1, 8), (3, 6, 0)):
            args = arguments(*sizes)
            assert_close(program(*args), module(*args))


def test_other_dtypes_keep_the_concats() -> None:
    """ONNX Runtime has no Attention of bfloat16. Casts of the whole present would cost more than the Concats."""
    args = (torch.randn(2, 4, 24), torch.randn(2, 3, 5, 2), torch.randn(2, 3, 5, 2))
    program = fx_onnx.export(
        Decoder().eval(), (*(x.bfloat16() for x in args), torch.ones(2, 1, 4, 9) > 0), opset_version=23
    )
    assert [node.op_type for node in program.model.graph].count("Concat") == 2
