"""Elimination of redundant Casts."""

import pytest
import torch

from fx_onnx.passes.cleanup.casts import MergeCasts
from tests.passes.checking import check, model


@pytest.mark.parametrize(
    ("first", "second", "operators"),
    [
        (11, 6, ["Cast"]),  # float → double → int32: the double holds every float
        (11, 1, []),  # float → double → float: nothing
        (10, 1, ["Cast", "Cast"]),  # float → float16 → float rounds
        (7, 1, ["Cast", "Cast"]),  # float → int64 → float truncates
        (9, 1, ["Cast", "Cast"]),  # float → bool → float
        (1, 11, ["Cast"]),  # float → float is nothing
    ],
)
def test_from_float(first: int, second: int, operators: list[str]) -> None:
    """Pairs of Casts from float32."""
    program = model(f"""g (float[N] x) => (y) {{
      r = Relu(x)\n a = Cast<to={first}>(r)\n b = Cast<to={second}>(a)\n y = Neg(b)
    }}""")
    check(program, MergeCasts(), [torch.tensor([1.7, 0.1, 70000.3])], ["Relu", *operators, "Neg"])


def test_from_integers() -> None:
    """int64 → float64 may round, so it stays; int32 → float64 and bool → float32 are lossless."""
    program = model("""g (int64[N] x, int32[N] y, bool[N] z) => (int64[N] a, int64[N] b, bool[N] c) {
      a1 = Cast<to=11>(x)\n a = Cast<to=7>(a1)
      b1 = Cast<to=11>(y)\n b = Cast<to=7>(b1)
      c1 = Cast<to=1>(z)\n c2 = Cast<to=9>(c1)\n c = Not(c2)
    }""")
    inputs = [torch.tensor([2**53 + 1]), torch.tensor([2**31 - 1], dtype=torch.int32), torch.tensor([True])]
    check(program, MergeCasts(), inputs, ["Cast", "Cast", "Cast", "Not"])
