"""Removal of the guards of queries whose keys are all masked."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.passes.cleanup.row_guards import eliminate_row_guards
from tests.passes.checking import check, model

CONSTANTS = (
    "<float low = {-3.4e38}, float nil = {0}, float half = {-1e38}, float one = {1},"
    " float two = {2}, int64[1] keys = {3}, int64[4] rows = {0, 2, -1, 0}>"
)
BIAS = "c = Cast<to=1>(m)\n b = Mul(c, low)\n"
GUARDS = """l = Less(b, low)\n n = Where(l, nil, two)\n s = ReduceSum(n, keys)\n k = Clip(s, low, one)\n h = Mul(s, low)
    d = Where(l, h, b)\n e = Add(x, d)\n w = Softmax(e)\n"""
PRODUCT = "p = MatMul(w, v)\n y = Mul(p, k)"
LEFT = ["Cast", "Mul", "Add", "Softmax", "MatMul"]


def program(text: str, keys: str = "4", queries: str = "3") -> ir.Model:
    scores = f"{queries},{keys}"
    inputs = f"float[2,2,{scores}] x, float[2,2,{keys},5] v, bool[2,1,{scores}] m, float[2,1,{scores}] z"
    return model(f"g ({inputs}) => (float[2,2,{queries},5] y) {CONSTANTS} {{ {text} }}")


def args(keys: int = 4) -> list[torch.Tensor]:
    """The first query of the second row sees no key."""
    mask = torch.rand(2, 1, 3, keys) > 0.5
    mask[1, 0, 0] = True
    shapes = (2, 2, 3, keys), (2, 2, keys, 5), (2, 1, 3, keys)
    x, v, z = (torch.randn(*shape) for shape in shapes)
    return [x, v, mask, z]


@pytest.mark.parametrize(
    ("bias", "more"),
    [
        (BIAS, []),
        (BIAS.replace("b = ", "i = Sub(one, c)\n b = ").replace("Mul(c", "Mul(i"), ["Sub"]),
        ("b = Where(m, low, nil)\n", None),
    ],
)
def test_a_bias_of_finite_numbers(bias: str, more: list[str] | None) -> None:
    operators = [*LEFT, *more] if more is not None else ["Where", *LEFT[2:]]
    check(program(bias + GUARDS + PRODUCT), eliminate_row_guards, args(), operators)


def test_a_dynamic_number_of_keys() -> None:
    check(program(BIAS + GUARDS + PRODUCT, "K"), eliminate_row_guards, args(6), LEFT)


def test_rows_of_an_unknown_number() -> None:
    """The heads that share keys are rows of one product, whose number no inference finds."""
    found = program(
        f"{BIAS}{GUARDS} r = Reshape(w, rows)\n q = MatMul(r, v)\n p = Reshape(q, rows)\n y = Mul(p, k)", "K", "Q"
    )
    values = {node.outputs[0].name: node.outputs[0] for node in found.graph}
    values["r"].shape, values["p"].shape = ir.Shape((2, 2, None, "K")), values["y"].shape
    check(found, eliminate_row_guards, args(6), [*LEFT, "Reshape", "Reshape"])


def test_no_keys() -> None:
    """The result is zeros with the guards and without them."""
    check(program(BIAS + GUARDS + PRODUCT, "K"), eliminate_row_guards, args(0), LEFT)


@pytest.mark.parametrize(
    "text",
    [
        BIAS.replace("Mul(c, low)", "Add(z, low)") + GUARDS + PRODUCT,
        f"{BIAS.replace('b = ', 'a = ')} b = Add(a, half)\n {GUARDS} {PRODUCT}",
        f"c = Cast<to=1>(m)\n b = Identity(z)\n {GUARDS} {PRODUCT}",
    ],
)
def test_an_element_may_be_infinite(text: str) -> None:
    """The bias is an input or a sum with one, or a sum overflows."""
    assert not eliminate_row_guards(program(text)).modified


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (GUARDS + PRODUCT.replace("Mul(p, k)", "Mul(k, p)"), 7),
        (GUARDS + "r = Relu(x)\n p = MatMul(r, v)\n q = Relu(p)\n y = Mul(q, k)", 2),
    ],
)
def test_which_products(text: str, count: int) -> None:
    """The factor is on either side. Where it multiplies no product over the keys, it stays."""
    found = program(BIAS + text)
    before = len(found.graph)
    eliminate_row_guards(found)
    assert before - len(found.graph) == count
