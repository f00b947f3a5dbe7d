"""Operators of integers and of narrow dtypes."""

from collections.abc import Callable

import pytest
import torch

from fx_onnx.passes.legalization.integers import legalize_integer_extrema
from tests.one_capture import OneCapture
from tests.passes.checking import check, model, run

# ---------------------------------------------------------------- extrema of int64


ENDS = [0, 5, -5, 2**31 - 1, 2**31, 2**31 + 5, 2**32 - 1, 2**32, -(2**31), -(2**31) - 1, -(2**32), 2**62, -(2**63)]
FIRST, SECOND = torch.cartesian_prod(torch.tensor(ENDS), torch.tensor(ENDS)).T.contiguous()


@pytest.mark.parametrize(
    ("nodes", "operators", "wanted"),
    [
        ("y = Max(x, z)", ["Greater", "Where"], torch.maximum),
        ("y = Min(x, z)", ["Less", "Where"], torch.minimum),
        ("y = Max(x, z, five)", ["Greater", "Where"] * 2, lambda x, z: x.maximum(z).clamp(min=5)),
        ("s = Sign(x)\n y = Mul(s, z)", ["Greater", "Less", "Cast", "Cast", "Sub", "Mul"], lambda x, z: x.sign() * z),
        ("c = Clip(x, least, five)\n y = Sub(c, z)", ["Greater", "Where", "Less", "Where", "Sub"],
         lambda x, z: x.clamp(-5, 5) - z),
        ("c = Clip(x, , five)\n y = Sub(c, z)", ["Less", "Where", "Sub"], lambda x, z: x.clamp(max=5) - z),
    ],
)  # fmt: skip
def test_rewritten(
    nodes: str, operators: list[str], wanted: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    program = model(
        f"g (int64[N] x, int64[N] z) => (int64[N] y) <int64 least = {{-5}}, int64 five = {{5}}> {{ {nodes} }}"
    )
    legalize_integer_extrema(program)
    assert [node.op_type for node in program.graph] == operators
    assert run(program, [FIRST, SECOND])[0].equal(wanted(FIRST, SECOND))


@pytest.mark.parametrize(
    ("signature", "nodes", "x"),
    [
        ("(int32[N] x) => (int32[N] y)", "y = Max(x, x)", FIRST.int()),
        ("(int32[N] x) => (int64[N] y)", "w = Cast<to=7>(x)\n y = Max(w, five)", FIRST.int()),
        (
            "(float[N,M] x) => (int64[K] y)",
            "s = Shape<end=1>(x)\n t = Add(s, five)\n y = Max(t, five)",
            torch.ones(2, 3),
        ),
        (
            "(float[N,M] x) => (int64[K] y)",
            "s = Shape<end=1>(x)\n t = Concat<axis=0>(s)\n y = Max(t, five)",
            torch.ones(2, 3),
        ),
        ("(float[N] x) => (float[N] y)", "y = Sign(x)", torch.ones(3)),
    ],
)
def test_numbers_of_32_bits_stay(signature: str, nodes: str, x: torch.Tensor) -> None:
    program = model(f"g {signature} <int64 five = {{5}}> {{ {nodes} }}")
    before = [node.op_type for node in program.graph]
    check(program, legalize_integer_extrema, [x], before)


@pytest.mark.parametrize(
    "nodes",
    [
        "s = Shape<end=1>(x)\n t = Mul(s, large)\n y = Max(t, large)",
        "s = Shape<end=1>(x)\n e = Add(s, large)\n l = Squeeze(large)\n t = Squeeze(e)\n r = Range(l, t, one)\n"
        " y = Max(r, large)",
    ],
)
def test_large_multiples_and_ranges_are_no_sizes(nodes: str) -> None:
    text = f"g (float[N,M] x) => (int64[K] y) <int64[1] large = {{2147483000}}, int64 one = {{1}}> {{ {nodes} }}"
    program = model(text)
    legalize_integer_extrema(program)
    assert "Max" not in [node.op_type for node in program.graph]


class Extrema(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.clamp(-5, 5),
            x.clamp(min=0),
            x.relu(),
            x.sign(),
            x % 2**31,
            x // 2**40,
            x ^ 3,
            ~x,
            x.maximum(x.flip(0)),
        )


def test_models() -> None:
    x = torch.tensor(ENDS[:-1])
    captured = OneCapture(Extrema(), (x,))
    for opset in (18, 20, 23):
        for got, wanted in zip(captured.export(opset_version=opset)(x), Extrema()(x), strict=True):
            assert got.equal(wanted)
