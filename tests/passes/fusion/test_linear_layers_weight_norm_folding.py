"""Folding of weight normalization into the weight."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import fx_onnx
from fx_onnx.onnx_model.weights import LazyWeight
from fx_onnx.passes.fusion.linear_layers import fold_weight_norm
from tests.compare import assert_close
from tests.passes.checking import check, model
from tests.torch_versions import has

TEXT = """g (float[N,4,9] x) => (float[N,6,7] y) <int64[2] axes = {1, 2}> {
  n = ReduceL2(v, axes)\n q = Div(g, n)\n w = Mul(v, q)\n y = Conv(x, w)
}"""
X = torch.randn(2, 4, 9)


def weights(v: tuple[int, ...] = (6, 4, 3), g: tuple[int, ...] = (6, 1, 1)) -> dict[str, torch.Tensor]:
    return {"v": torch.randn(v), "g": torch.rand(g) + 0.5}


def test_one_convolution_is_left() -> None:
    program = check(model(TEXT, weights()), fold_weight_norm, [X], ["Conv"])
    folded = program.graph[0].inputs[1]
    assert folded is not None and folded.name == "v_folded" and isinstance(folded.const_value, LazyWeight)


def test_the_operands_may_be_swapped() -> None:
    check(model(TEXT.replace("Mul(v, q)", "Mul(q, v)"), weights()), fold_weight_norm, [X], ["Conv"])


def test_the_norm_of_the_whole_weight() -> None:
    check(model(TEXT.replace("(v, axes)", "<keepdims=0>(v)"), weights(g=())), fold_weight_norm, [X], ["Conv"])


def test_a_module_that_runs_twice() -> None:
    """Each run computes the weight; the model keeps one."""
    text = TEXT.replace("y = Conv(x, w)", "m = ReduceL2(v, axes) p = Div(g, m) u = Mul(v, p) y = Sum(a, b)")
    text = text.replace("y = Sum", "a = Conv(x, w) b = Conv(x, u) y = Sum")
    program = check(model(text, weights()), fold_weight_norm, [X], ["Conv", "Conv", "Sum"])
    assert program.graph[0].inputs[1] is program.graph[1].inputs[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y = Conv(x, w)", "z = Conv(x, w) y = Add(z, g)"),  # another node reads g
        ("y = Conv(x, w)", "z = Conv(x, v) c = Conv(x, w) y = Add(c, z)"),  # another node reads v
        ("Div(g, n)", "Div(n, g)"),
        ("ReduceL2(v, axes)", "ReduceL1(v, axes)"),
        ("Mul(v, q)", "Mul(q, q)"),
        ("ReduceL2(v, axes)", "ReduceL2<noop_with_empty_axes=1>(v)"),
    ],
)
def test_declined(old: str, new: str) -> None:
    assert not fold_weight_norm(model(TEXT.replace(old, new), weights())).modified


def test_weights_of_the_caller() -> None:
    """They may change after the export."""
    text = TEXT.replace("float[N,4,9] x)", "float[N,4,9] x, float[6,4,3] v, float[6,1,1] g)")
    assert not fold_weight_norm(model(text)).modified


@pytest.mark.parametrize("dim", [0, 2, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_modules_of_torch(dim: int | None, dtype: torch.dtype) -> None:
    """The folded weight is torch's, also after the program gets new weights."""
    one, other = (weight_norm(nn.Conv1d(4, 6, 3), dim=dim).to(dtype).eval() for _ in range(2))
    program = fx_onnx.export(one, (X.to(dtype),), verbose=False)
    if has("norms in float16") or dtype == torch.float32:
        assert "Mul" not in [node.op_type for node in program.model.graph]
    assert_close(program(X.to(dtype)), one(X.to(dtype)))
    program.apply_weights(other.state_dict())
    assert_close(program(X.to(dtype)), other(X.to(dtype)))
