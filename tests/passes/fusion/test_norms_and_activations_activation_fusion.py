"""Fusion of Gelu, Swish and SwiGLU."""

import pytest
import torch

from fx_onnx.passes.fusion.norms_and_activations import fuse_gelu, fuse_swiglu, fuse_swish
from tests.passes.checking import check, model, origins, with_swiglu

X = torch.cat([torch.randn(1, 12) * 3, torch.tensor([[0.0, -0.0, 40.0, -40.0] * 3])])
CONSTANTS = (
    "<float half = {0.5}, float one = {1.0}, float three = {3.0}, float c = {0.044715}, float s = {0.7978845608},"
    " float root = {1.41421356237}, float inverse = {0.70710678118}, float alpha = {1.702}>"
)
CUBIC = "p = Pow(x, three)\n q = Mul(p, c)\n a = Add(x, q)\n b = Mul(a, s)\n t = Tanh(b)\n u = Add(t, one)\n"


@pytest.mark.parametrize(
    "text",
    [
        f"h = Mul(x, half)\n {CUBIC} y = Mul(h, u)",
        f"{CUBIC} v = Mul(x, u)\n y = Mul(half, v)",
        CUBIC.replace("p = Pow(x, three)", "o = Mul(x, x)\n p = Mul(o, x)") + "h = Mul(half, x)\n y = Mul(u, h)",
        "d = Div(x, root)\n e = Erf(d)\n u = Add(e, one)\n v = Mul(x, u)\n y = Mul(v, half)",
        "h = Mul(half, x)\n d = Mul(x, inverse)\n e = Erf(d)\n u = Add(one, e)\n y = Mul(h, u)",
    ],
)
def test_gelu(text: str) -> None:
    """The form of GPT-2, other orders of the factors, the cube as products, and the exact Gelu."""
    program = model(f"g (float[N,12] x) => (float[N,12] y) {CONSTANTS} {{ {text} }}")
    check(program, fuse_gelu, [X], ["Gelu"])
    assert origins(program, "y") >= {f"%{part.split(' = ')[0].strip()}" for part in text.split("\n")}


@pytest.mark.parametrize(
    "text",
    [
        f"h = Mul(x, one)\n {CUBIC} y = Mul(h, u)",
        f"h = Mul(x, half)\n {CUBIC.replace('p, c', 'p, s')} y = Mul(h, u)",
        f"h = Mul(z, half)\n {CUBIC} y = Mul(h, u)",
        f"h = Mul(x, half)\n {CUBIC} v = Mul(h, u)\n y = Add(v, t)",
        "h = Mul(x, half)\n d = Mul(x, root)\n e = Erf(d)\n u = Add(e, one)\n y = Mul(h, u)",
    ],
)
def test_no_gelu(text: str) -> None:
    """Other factors, another x, a second consumer."""
    program = model(f"g (float[N,12] x, float[N,12] z) => (float[N,12] y) {CONSTANTS} {{ {text} }}")
    assert not fuse_gelu(program).modified


@pytest.mark.parametrize(
    "text", ["s = Sigmoid(x)\n y = Mul(x, s)", "a = Mul(alpha, x)\n s = Sigmoid(a)\n y = Mul(s, x)"]
)
def test_swish(text: str) -> None:
    """With and without alpha, from opset 24 on."""
    body = f"g (float[N,12] x) => (float[N,12] y) <float alpha = {{1.702}}> {{ {text} }}"
    check(model(body, opset=24), fuse_swish, [X], ["Swish"])
    assert not fuse_swish(model(body, opset=23)).modified


def test_no_swish() -> None:
    """The Sigmoid is of another value."""
    program = model("g (float[N] x, float[N] z) => (float[N] y) { s = Sigmoid(z)\n y = Mul(x, s) }", opset=24)
    assert not fuse_swish(program).modified


def test_no_swish_if_the_attribute_would_round_alpha() -> None:
    """An attribute is a float32, which does not represent 1.702 of a float64 model."""
    for number, modified in (("1.702", False), ("1.5", True)):
        text = f"g (double[N] x) => (double[N] y) <double alpha = {{{number}}}> {{ a = Mul(alpha, x)\n"
        program = model(f"{text} s = Sigmoid(a)\n y = Mul(s, x) }}", opset=24)
        assert fuse_swish(program).modified is modified


@with_swiglu
@pytest.mark.parametrize(("shape", "operators"), [("N,12", ["SwiGLU"]), ("1,12", ["Swish", "Mul"])])
def test_swiglu(shape: str, operators: list[str]) -> None:
    """SwiGLU does not broadcast."""
    text = f"g (float[N,12] x, float[{shape}] z) => (float[N,12] y) {{ s = Swish<alpha=2.0>(x)\n y = Mul(z, s) }}"
    z = torch.randn(2 if shape == "N,12" else 1, 12)
    check(model(text, opset=28), fuse_swiglu, [X[:2], z], operators)
    assert not fuse_swiglu(model(text, opset=27)).modified
