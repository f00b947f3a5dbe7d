"""Fusion of RMS norms."""

import pytest
import torch

from fx_onnx.passes.fusion.rms_norm_fusion import FuseRMSNorm
from tests.passes.checking import check, model, origins

WEIGHTS = {"w": torch.randn(4)}
CONSTANTS = "<float two = {2.0}, float e = {0.001}, int64[1] last = {-1}, int64[1] first = {1}, int64[0] none = {}>"
NORM = "p = Pow(x, two)\n m = ReduceMean(p, last)\n a = Add(m, e)\n r = Sqrt(a)\n d = Div(x, r)\n"


@pytest.mark.parametrize("product", ["Mul(w, d)", "Mul(d, w)"])
def test_fused(product: str) -> None:
    """One node is left, with the metadata of the Div and the Mul."""
    program = model(f"g (float[N,3,4] x) => (float[N,3,4] y) {CONSTANTS} {{ {NORM} y = {product} }}", WEIGHTS, 23)
    check(program, FuseRMSNorm(), [torch.randn(2, 3, 4)], ["RMSNormalization"])
    assert {"%d", "%y"} <= origins(program, "y")
    node = program.graph[0]
    assert node.attributes["epsilon"].value == pytest.approx(0.001)


def test_square_as_product_and_two_axes() -> None:
    """The square may be x * x, epsilon the first operand, and the weight may have two axes."""
    program = model("""g (float[N,3,4] x) => (float[N,3,4] y) <float e = {0.001}, int64[2] last = {2,1}> {
      p = Mul(x, x)\n m = ReduceMean(p, last)\n a = Add(e, m)\n r = Sqrt(a)\n d = Div(x, r)\n y = Mul(d, w)
    }""", {"w": torch.randn(3, 4)}, 23)  # fmt: skip
    check(program, FuseRMSNorm(), [torch.randn(2, 3, 4)], ["RMSNormalization"])
    assert program.graph[0].attributes["axis"].value == -2


def test_half_precision() -> None:
    """Casts of x to float32 and of the quotient back are absorbed, because the operator computes in float32."""
    for norm in (NORM, NORM.replace("Pow(x", "Pow(z")):
        program = model(f"""g (float16[N,3,4] h) => (float16[N,3,4] y) {CONSTANTS} {{
          x = Cast<to=1>(h)\n z = Cast<to=1>(h)\n {norm} c = Cast<to=10>(d)\n y = Mul(w, c)
        }}""", {"w": torch.randn(4).half()}, 23)  # fmt: skip
        operators = ["RMSNormalization"] if "z" in norm else ["RMSNormalization", "Cast"]  # of the unused z
        check(program, FuseRMSNorm(), [torch.randn(2, 3, 4).half()], operators, 1e-2)


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        (f"{NORM} y = Mul(w, d)", {"w": torch.randn(3, 1)}),
        (f"{NORM.replace('last', 'first')} y = Mul(w, d)", WEIGHTS),
        (f"{NORM.replace('two', 'e')} y = Mul(w, d)", WEIGHTS),
        (f"{NORM} c = Mul(w, d)\n y = Add(c, d)", WEIGHTS),
    ],
)
def test_declined(text: str, weights: dict[str, torch.Tensor]) -> None:
    """A weight of another shape, the mean over another axis, another power, and a Div with a second consumer."""
    program = model(f"g (float[N,3,4] x) => (float[N,3,4] y) {CONSTANTS} {{ {text} }}", weights, 23)
    assert not FuseRMSNorm()(program).modified


def test_an_epsilon_that_adds_an_axis() -> None:
    """An epsilon of higher rank than x adds an axis to the result."""
    constants = CONSTANTS.replace("float e = {0.001}", "float[1,1,1,1] e = {0.001}")
    program = model(f"g (float[2,3,4] x) => (float[1,2,3,4] y) {constants} {{ {NORM} y = Mul(w, d) }}", WEIGHTS, 23)
    assert not FuseRMSNorm()(program).modified


def test_a_mean_over_no_axis() -> None:
    """With noop_with_empty_axes a ReduceMean without axes reduces nothing."""
    norm = NORM.replace("ReduceMean(p, last)", "ReduceMean<noop_with_empty_axes=1>(p, none)")
    text = f"g (float[2,3,4] x) => (float[2,3,4] y) {CONSTANTS} {{ {norm} y = Mul(w, d) }}"
    assert not FuseRMSNorm()(model(text, {"w": torch.randn(2, 3, 4)}, 23)).modified


def test_not_below_its_opset() -> None:
    """RMSNormalization exists from opset 23 on."""
    program = model(f"g (float[N,3,4] x) => (float[N,3,4] y) {CONSTANTS} {{ {NORM} y = Mul(w, d) }}", WEIGHTS, 22)
    assert not FuseRMSNorm()(program).modified
