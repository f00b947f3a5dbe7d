"""Products of a repeated constant."""

import pytest
import torch

from fx_onnx.passes.legalization.repeated_constants import LegalizeRepeatedConstants
from tests.passes.checking import check_equal, model

TEXT = """g (float[N] x) => (float[N,M,2] y) <int64[2] ones = {{{rows}, {last}}}, float[N,4,3] t> {{
  n = Shape(x)\n r = Concat<axis=0>(n, ones)\n t = {operator}(c, r)\n {rest}
}}"""
TRANSPOSED = "u = Transpose<perm=[1,0,2]>(t)\n v = MatMul(u, w)\n y = Transpose<perm=[1,0,2]>(v)"


@pytest.mark.parametrize(("operator", "rows", "last"), [("Tile", 1, 1), ("Expand", 4, 3)])
@pytest.mark.parametrize("rest", ["y = MatMul(t, w)", TRANSPOSED])
def test_product_before_the_repetition(operator: str, rows: int, last: int, rest: str) -> None:
    """The product, and a Transpose before it, read constants."""
    text = TEXT.format(operator=operator, rows=rows, last=last, rest=rest)
    program = model(text, {"c": torch.randn(1, 4, 3), "w": torch.randn(3, 2)})
    check_equal(program, LegalizeRepeatedConstants(), [torch.zeros(5)])
    operators = [node.op_type for node in program.graph]
    assert operators.index("MatMul") < operators.index(operator)


def test_a_repeated_last_axis_stays() -> None:
    text = TEXT.format(operator="Tile", rows=1, last=2, rest="y = MatMul(t, w)").replace("4,3]", "4,6]")
    program = model(text, {"c": torch.randn(1, 4, 3), "w": torch.randn(6, 2)})
    assert not LegalizeRepeatedConstants()(program).modified
