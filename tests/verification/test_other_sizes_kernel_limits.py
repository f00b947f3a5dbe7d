"""Calls that a kernel refuses because of several sizes together."""

import onnx_ir as ir
import pytest

from fx_onnx.verification.other_sizes import CacheLimit, cache_limits

LIMIT = CacheLimit("batch", "sequence", "past", "total")


@pytest.mark.parametrize(
    ("batch", "sequence", "past", "total", "taken"),
    [
        (2, 6, 5, 11, False),
        (1, 6, 5, 11, True),
        (2, 1, 5, 6, True),
        (2, 6, 0, 6, True),
        (1, 6, 5, 7, False),  # the mask has another length than past and new tokens
    ],
)
def test_takes(batch: int, sequence: int, past: int, total: int, taken: bool) -> None:
    assert LIMIT.takes({"batch": batch, "sequence": sequence, "past": past, "total": total}) is taken


def test_fixed_sizes_and_unknown_ones() -> None:
    assert CacheLimit(1, "sequence", 5, "total").takes({"sequence": 3, "total": 8})
    assert not CacheLimit(2, 6, 5, 11).takes({})
    assert LIMIT.takes({"batch": 2})


TEXT = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[batch, sequence, 16] q, float[batch, 2, past, 8] k, int64[batch, total] mask, int32[batch] last)
    => (float[batch, sequence, 16] y) {
    shape = Shape <start = 1, end = 2> (mask)
    axes = Constant <value_ints = [0]> ()
    number = Squeeze(shape, axes)
    length = Cast <to = 6> (number)
    y, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (q, q, q, k, k, last, length)
    y2, pk2, pv2 = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (q, q, q, k, k, last, length)
}"""


def test_limits_of_a_model() -> None:
    model = ir.from_onnx_text(TEXT)
    assert cache_limits(model) == (LIMIT,)
    assert cache_limits(ir.from_onnx_text(TEXT.replace("GroupQueryAttention", "Other"))) == ()
