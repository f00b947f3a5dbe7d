"""Fusion of attention with sinks into GroupQueryAttention."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.backends.group_query_attention import fuse_sink_attention
from tests.compare import assert_close
from tests.passes.checking import check_equal, model, run
from tests.passes.fusion.masks import CAUSAL, CONSTANTS, PADDING, WINDOW

TYPES = "float[B,S,32] q, float[B,S,16] k, float[B,S,16] v, int64[B,T] padding, float[B,2,P,8] pk, float[B,2,P,8] pv"
MORE = (
    ", float hidden = {-3.4028235e38}, float shown_score = {0}, float scale = {0.5}, int64[4] split = {0,0,4,8},"
    " int64[4] split2 = {0,0,2,8}, int64[4] grouped = {0,2,-1,0}, int64[4] apart = {0,4,-1,0},"
    " int64[3] flat = {0,0,32}, int64[1] n4 = {4}, int64[1] n1v = {1}>"
)
HEADS = """q4 = Reshape(q, split)\n qh = Transpose<perm=[0,2,1,3]>(q4)
 k4 = Reshape(k, split2)\n kh = Transpose<perm=[0,2,1,3]>(k4)
 v4 = Reshape(v, split2)\n vh = Transpose<perm=[0,2,1,3]>(v4)
 fk = Concat<axis=2>(pk, kh)\n fv = Concat<axis=2>(pv, vh)\n kt = Transpose<perm=[0,1,3,2]>(fk)
"""
SCORES = """qg = Reshape(qh, grouped)\n sg = MatMul(qg, kt)\n s0 = Reshape(sg, apart)\n s1 = Mul(s0, scale)
 bias = Where(mask, shown_score, hidden)\n s2 = Add(s1, bias)
"""
READ = """shape = Concat<axis=0>(batch, n4, length, n1v)\n column = Expand(sinks, shape)
 s3 = Concat<axis=-1>(s2, column)\n p0 = Softmax(s3)\n p1 = Slice(p0, zero, last, last)
 pg = Reshape(p1, grouped)\n yg = MatMul(pg, fv)\n y4 = Reshape(yg, apart)\n ys = Transpose<perm=[0,2,1,3]>(y4)
 y = Reshape(ys, flat)
"""
FULL = CAUSAL + PADDING + "mask = And(causal, token)\n"
NARROW = CAUSAL + PADDING + WINDOW + "near2 = And(near, causal)\n mask = And(near2, token)\n"


def decoder(mask: str = FULL, scores: str = SCORES, read: str = READ, more: str = "") -> ir.Model:
    """Returns a model of one attention with sinks that takes and returns a cache."""
    results = f"float[B,S,32] y, float[B,2,K,8] fk, float[B,2,K,8] fv{more}"
    sizes = "float[B,4,S,8] qh, float[B,2,S,8] kh, float[B,2,S,8] vh, float[B,S,4,8] q4, float[B,S,2,8] k4"
    sizes += ", float[B,S,2,8] v4, float[B,4,S,K] s0, float[B,4,S,1] column, float[B,4,S,8] y4, float[B,4,S,K] p1"
    text = f"g ({TYPES}) => ({results}) {CONSTANTS[:-1]}{MORE[:-1]}, {sizes}> {{ {mask} {HEADS} {scores} {read} }}"
    return model(text, {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0]).reshape(1, 4, 1, 1)}, opset=23)


def inputs(batch: int, length: int, past: int) -> list[torch.Tensor]:
    new = [torch.randn(batch, length, size) for size in (32, 16, 16)]
    return [*new, torch.ones(batch, past + length, dtype=torch.int64), *torch.randn(2, batch, 2, past, 8)]


@pytest.mark.parametrize(("batch", "length", "past"), [(2, 6, 0), (2, 1, 5), (1, 3, 5), (1, 1, 0)])
@pytest.mark.parametrize(
    ("mask", "scores"),
    [
        (FULL, SCORES),
        (NARROW, SCORES),
        (FULL, SCORES.replace("s1 = Mul(s0, scale)\n", "").replace("Add(s1", "Add(s0")),
    ],
)
def test_fused(mask: str, scores: str, batch: int, length: int, past: int) -> None:
    """Prompts, single tokens, and more tokens of one text, with and without a window and a scale."""
    program = decoder(mask, scores)
    check_equal(program, fuse_sink_attention, inputs(batch, length, past), None)
    found = [node.op_type for node in program.graph]
    assert found.count("GroupQueryAttention") == 1 and not {"Softmax", "MatMul", "Transpose", "Slice"} & set(found)
    assert program.graph.initializers["sinks_vector"].shape == (4,)


def test_padding_on_the_right() -> None:
    given = inputs(2, 6, 0)
    given[3] = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    program = decoder()
    before = run(program, given)
    assert fuse_sink_attention(program).modified
    after = run(program, given)
    assert_close(after[0][0], before[0][0])
    assert_close(after[0][1, :3], before[0][1, :3])


@pytest.mark.parametrize(
    "program",
    [
        decoder(CAUSAL + PADDING + "mask = And(token, token)\n"),  # not causal
        decoder(read=READ.replace("Slice(p0, zero, last, last)", "Slice(p0, n1v, end, last)")
                .replace("shape =", "end = Constant<value_ints=[2147483647]>()\n shape =")),  # the first column
        decoder(read=READ.replace("Concat<axis=-1>(s2, column)", "Concat<axis=-1>(column, s2)")),
        decoder(scores=SCORES.replace("Mul(s0, scale)", "Mul(s0, s0)")),
        decoder(read=READ + "other = Neg(fk)\n", more=", float[B,2,K,8] other"),
        decoder(read=READ + "other = Neg(p0)\n", more=", float[B,4,S,L] other"),
    ],
)  # fmt: skip
def test_declined(program: ir.Model) -> None:
    """Another mask, another column, a computed scale, and values that other nodes read."""
    assert not fuse_sink_attention(program).modified
