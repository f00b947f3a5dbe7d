"""Fusion of Attention with a cache into GroupQueryAttention."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.backends.group_query_attention import fuse_group_query_attention
from tests.compare import assert_close
from tests.passes.checking import check_equal, model, origins, run
from tests.passes.fusion.masks import CAUSAL, CONSTANTS, PADDING, WINDOW

TYPES = "float[B,S,32] q, float[B,S,16] k, float[B,S,16] v, int64[B,T] padding, float[B,2,P,8] pk, float[B,2,P,8] pv"
HEADS = "q_num_heads=4, kv_num_heads=2"
FULL = CAUSAL + PADDING + "mask = And(causal, token)\n"


def decoder(nodes: str = FULL, attributes: str = HEADS, types: str = TYPES, attention: str = "") -> ir.Model:
    """Returns a model of one Attention that takes and returns a cache."""
    attention = attention or f"y, fk, fv = Attention<{attributes}>(q, k, v, mask, pk, pv)"
    results = "float[B,S,32] y, float[B,2,K,8] fk, float[B,2,K,8] fv"
    if "double" in types:
        results = results.replace("float", "double")
    return model(f"g ({types}) => ({results}) {CONSTANTS} {{ {nodes} {attention} }}", opset=23)


def inputs(batch: int, length: int, past: int) -> list[torch.Tensor]:
    new = [torch.randn(batch, length, size) for size in (32, 16, 16)]
    return [*new, torch.ones(batch, past + length, dtype=torch.int64), *torch.randn(2, batch, 2, past, 8)]


def operators(program: ir.Model) -> list[str]:
    return [node.op_type for node in program.graph]


@pytest.mark.parametrize(("batch", "length", "past"), [(2, 6, 0), (2, 1, 5), (1, 3, 5), (1, 1, 0)])
@pytest.mark.parametrize(
    ("nodes", "attributes"),
    [
        (FULL, HEADS),
        (FULL, f"{HEADS}, scale=0.5, softcap=2.0"),
        (CAUSAL + PADDING + WINDOW + "near2 = And(near, causal)\n mask = And(near2, token)\n", HEADS),
    ],
)
def test_fused(nodes: str, attributes: str, batch: int, length: int, past: int) -> None:
    """The mask becomes the number of tokens of each text; prompts, single tokens, and more tokens of one text."""
    program = decoder(nodes, attributes)
    check_equal(program, fuse_group_query_attention, inputs(batch, length, past), None)
    lengths = ["Cast", "Cast", "Cast", "GroupQueryAttention", "ReduceSum", "Shape", "Squeeze", "Sub"]
    assert sorted(operators(program)) == lengths
    assert "%fk" not in origins(program, "y")


def test_padding_on_the_right() -> None:
    """The results of the tokens are those of Attention; the padding is no token."""
    given = inputs(2, 6, 0)
    given[3] = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    program = decoder()
    before = run(program, given)
    assert fuse_group_query_attention(program).modified
    after = run(program, given)
    for want, found in zip(before, after, strict=True):
        assert_close(found[0], want[0])
    assert_close(after[0][1, :3], before[0][1, :3])


def test_layers_share_the_lengths() -> None:
    layers = f"""y1, fk1, fv1 = Attention<{HEADS}>(q, k, v, mask, pk, pv)
    y, fk, fv = Attention<{HEADS}>(y1, k, v, mask, pk, pv)"""
    program = decoder(attention=layers)
    assert fuse_group_query_attention(program).modified
    found = operators(program)
    assert (found.count("GroupQueryAttention"), found.count("ReduceSum"), found.count("Range")) == (2, 1, 0)
    assert program.graph.opset_imports["com.microsoft"] == 1


@pytest.mark.parametrize(
    "program",
    [
        decoder(CAUSAL + PADDING + "mask = And(token, token)\n"),  # not causal
        decoder(CAUSAL + PADDING + "mask = And(causal, causal)\n"),  # no padding
        decoder(CAUSAL + PADDING + "c = Greater(query, key)\n mask = And(c, token)\n"),  # a token does not see itself
        decoder(CAUSAL + PADDING + WINDOW + "f = Greater(first, key)\n m = And(causal, token)\n mask = And(f, m)\n"),
        decoder(attributes="q_num_heads=8, kv_num_heads=4"),  # heads of 4 numbers
        decoder(attributes=f"{HEADS}, is_causal=1"),
        decoder(types=TYPES.replace("[B,S,16] k", "[B,M,16] k").replace("[B,S,16] v", "[B,M,16] v")),
        decoder(types=TYPES.replace("[B,S,16] v", "[B,S,32] v").replace("P,8] pv", "P,16] pv")),
        decoder(types=TYPES.replace("float[", "double[")),
        decoder(types=TYPES.replace("[B,2,P,8] pk", "[B,2,R,8] pk").replace("[B,2,P,8] pv", "[B,2,R,8] pv"),
                nodes=FULL.replace("(pk)", "(q)")),
        decoder(FULL + "pk2 = Neg(pk)\n", attention=f"y, fk, fv = Attention<{HEADS}>(q, k, v, mask, pk2, pv)"),
    ],
)  # fmt: skip
def test_declined(program: ir.Model) -> None:
    """Masks of other meanings, other sizes and dtypes, and a past that is computed."""
    assert not fuse_group_query_attention(program).modified
