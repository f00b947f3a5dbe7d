"""Fusion of RMS norms, and of the residual sum before a norm."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.passes.fusion.norms_and_activations import canonicalize_reciprocals, fuse_rms_norm, fuse_skip_norm
from tests.passes.checking import check, model, origins

WEIGHTS = {"w": torch.randn(4)}
CONSTANTS = "<float two = {2.0}, float e = {0.001}, int64[1] last = {-1}, int64[1] first = {1}, int64[0] none = {}>"
NORM = "p = Pow(x, two)\n m = ReduceMean(p, last)\n a = Add(m, e)\n r = Sqrt(a)\n d = Div(x, r)\n"


@pytest.mark.parametrize("product", ["Mul(w, d)", "Mul(d, w)"])
def test_fused(product: str) -> None:
    """One node is left, with the metadata of the Div and the Mul."""
    program = model(f"g (float[N,3,4] x) => (float[N,3,4] y) {CONSTANTS} {{ {NORM} y = {product} }}", WEIGHTS, 23)
    check(program, fuse_rms_norm, [torch.randn(2, 3, 4)], ["RMSNormalization"])
    assert {"%d", "%y"} <= origins(program, "y")
    node = program.graph[0]
    assert node.attributes["epsilon"].value == pytest.approx(0.001)


def test_square_as_product_and_two_axes() -> None:
    """The square may be x * x, epsilon the first operand, and the weight may have two axes."""
    program = model("""g (float[N,3,4] x) => (float[N,3,4] y) <float e = {0.001}, int64[2] last = {2,1}> {
      p = Mul(x, x)\n m = ReduceMean(p, last)\n a = Add(e, m)\n r = Sqrt(a)\n d = Div(x, r)\n y = Mul(d, w)
    }""", {"w": torch.randn(3, 4)}, 23)  # fmt: skip
    check(program, fuse_rms_norm, [torch.randn(2, 3, 4)], ["RMSNormalization"])
    assert program.graph[0].attributes["axis"].value == -2


def test_half_precision() -> None:
    """Casts of x to float32 and of the quotient back are absorbed, because the operator computes in float32."""
    for norm in (NORM, NORM.replace("Pow(x", "Pow(z")):
        program = model(f"""g (float16[N,3,4] h) => (float16[N,3,4] y) {CONSTANTS} {{
          x = Cast<to=1>(h)\n z = Cast<to=1>(h)\n {norm} c = Cast<to=10>(d)\n y = Mul(w, c)
        }}""", {"w": torch.randn(4).half()}, 23)  # fmt: skip
        operators = ["RMSNormalization"] if "z" in norm else ["RMSNormalization", "Cast"]  # of the unused z
        check(program, fuse_rms_norm, [torch.randn(2, 3, 4).half()], operators, 1e-2)


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
    assert not fuse_rms_norm(program).modified


def test_an_epsilon_that_adds_an_axis() -> None:
    """An epsilon of higher rank than x adds an axis to the result."""
    constants = CONSTANTS.replace("float e = {0.001}", "float[1,1,1,1] e = {0.001}")
    program = model(f"g (float[2,3,4] x) => (float[1,2,3,4] y) {constants} {{ {NORM} y = Mul(w, d) }}", WEIGHTS, 23)
    assert not fuse_rms_norm(program).modified


def test_a_mean_over_no_axis() -> None:
    """With noop_with_empty_axes a ReduceMean without axes reduces nothing."""
    norm = NORM.replace("ReduceMean(p, last)", "ReduceMean<noop_with_empty_axes=1>(p, none)")
    text = f"g (float[2,3,4] x) => (float[2,3,4] y) {CONSTANTS} {{ {norm} y = Mul(w, d) }}"
    assert not fuse_rms_norm(model(text, {"w": torch.randn(2, 3, 4)}, 23)).modified


def test_not_below_its_opset() -> None:
    """RMSNormalization exists from opset 23 on."""
    program = model(f"g (float[N,3,4] x) => (float[N,3,4] y) {CONSTANTS} {{ {NORM} y = Mul(w, d) }}", WEIGHTS, 22)
    assert not fuse_rms_norm(program).modified


TYPES = "float[N,S,8] x, float[N,S,8] y"
NORM_SKIP = "s = Add(x, y)\n n = RMSNormalization<epsilon=0.01>(s, w)\n"


def sums(nodes: str, outputs: str = "float[N,S,8] n", types: str = TYPES) -> ir.Model:
    return model(f"g ({types}) => ({outputs}) {{ {nodes} }}", {"w": torch.rand(8) + 0.5}, opset=23)


def test_fused_skip() -> None:
    """The sum is read by another node too, or by none, or is an output of the graph."""
    inputs = list(torch.randn(2, 2, 3, 8))
    fused = "SkipSimplifiedLayerNormalization"
    both = sums(NORM_SKIP + "z = Mul(n, s)", "float[N,S,8] z")
    check(both, fuse_skip_norm, inputs, [fused, "Mul"])
    assert both.graph[0].domain == "com.microsoft" and both.graph.opset_imports["com.microsoft"] == 1
    alone = check(sums(NORM_SKIP), fuse_skip_norm, inputs, [fused])
    assert origins(alone, "n") == {"%s", "%n"}
    check(sums(NORM_SKIP, "float[N,S,8] s, float[N,S,8] n"), fuse_skip_norm, inputs, [fused])
    two = NORM_SKIP + "t = Add(s, n)\n m = RMSNormalization(t, w)\n z = Mul(m, t)"
    check(sums(two, "float[N,S,8] z"), fuse_skip_norm, inputs, [fused, fused, "Mul"])


@pytest.mark.parametrize(
    "program",
    [
        sums(NORM_SKIP, types="float[N,S,8] x, float[S,8] y"),  # broadcasts
        sums(NORM_SKIP, types="float[8] x, float[8] y", outputs="float[8] n"),
        sums(NORM_SKIP.replace("epsilon=0.01", "axis=1"), types=f"{TYPES}, float[S,8] w2"),
        sums("v = Neg(w)\n" + NORM_SKIP.replace("(s, w)", "(s, v)")),
        sums(NORM_SKIP.replace("Add", "Sub")),
    ],
)
def test_declined_skip(program: ir.Model) -> None:
    """Operands that broadcast, another rank or axis, a computed weight, and no sum."""
    assert not fuse_skip_norm(program).modified


def test_quotient() -> None:
    """The Reciprocal may be either operand."""
    program = model("""g (float[N,3] x, float[N,1] v) => (float[N,3] y, float[N,3] z) {
      s = Sqrt(v)\n a = Reciprocal(s)\n y = Mul(x, a)\n b = Reciprocal(v)\n z = Mul(b, x)
    }""")
    inputs = [torch.randn(4, 3), torch.rand(4, 1) + 0.1]
    check(program, canonicalize_reciprocals, inputs, ["Sqrt", "Div", "Div"])
    assert origins(program, "y") == {"%a", "%y"}


def test_shared_reciprocal_stays() -> None:
    """One Reciprocal and several products are cheaper than several quotients."""
    program = model("""g (float[N,3] x, float[N,1] v) => (float[N,3] y, float[N,3] z) {
      a = Reciprocal(v)\n y = Mul(x, a)\n b = Neg(x)\n z = Mul(b, a)
    }""")
    assert not canonicalize_reciprocals(program).modified
