"""Random numbers without a random kernel: limits, moments and independence."""

import math

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from fx_onnx.passes.legalization.random_draws import LegalizeRandomDraws
from tests.passes.checking import model, run

DTYPES = {"float": 1, "double": 11, "float16": 10, "bfloat16": 16}


def drawn(program: ir.Model, *inputs: torch.Tensor) -> torch.Tensor:
    """Returns the draw of the model as float64."""
    return run(program, inputs)[0].double()


def uniform(dtype: str, opset: int) -> ir.Model:
    draw = f"RandomUniform<dtype={DTYPES[dtype]}, shape=[200, 100]>()"
    return model(f"g () => (float[200, 100] y) {{ u = {draw} y = Cast<to=1>(u) }}", opset=opset)


@pytest.mark.parametrize(("dtype", "opset"), [("float", 22), ("double", 26), ("float16", 20), ("bfloat16", 22)])
def test_uniform(dtype: str, opset: int) -> None:
    """The numbers are in [0, 1), and there are as many distinct ones as the digits of the dtype allow."""
    program = uniform(dtype, opset)
    LegalizeRandomDraws()(program)
    found = drawn(program)
    assert found.min() >= 0 and found.max() < 1 + (dtype == "double") * 1e-7  # a double may round to 1 in float32
    assert abs(found.mean() - 0.5) < 0.02 and abs(found.std() - 1 / math.sqrt(12)) < 0.02
    assert len(found.unique()) > {"float": 19000, "double": 19000, "float16": 1500, "bfloat16": 200}[dtype]
    assert len(found.unique(dim=0)) == len(found)


@pytest.mark.parametrize("opset", [20, 23])
def test_normal_like(opset: int) -> None:
    """Mean, scale, tails and independence of normal numbers."""
    program = model(
        "g (float[N] x) => (float[N] y) { n = RandomNormalLike<dtype=10, mean=3.0, scale=2.0>(x) y = Cast<to=1>(n) }",
        opset=opset,
    )
    LegalizeRandomDraws()(program)
    found = drawn(program, torch.zeros(40000))
    assert found.shape == (40000,)
    assert abs(found.mean() - 3) < 0.06 and abs(found.std() - 2) < 0.06
    standard = (found - 3) / 2
    assert abs((standard.abs() > 1).double().mean() - 0.3173) < 0.02 and standard.abs().max() < 6
    assert abs((standard[1:] * standard[:-1]).mean()) < 0.03


def test_each_run_draws_new_numbers() -> None:
    program = uniform("float", 23)
    LegalizeRandomDraws()(program)
    session = onnxruntime.InferenceSession(ir.serde.serialize_model(program).SerializeToString())
    first, second = (session.run(None, {})[0] for _ in range(2))
    assert (first == second).mean() < 0.01


def test_limits_of_uniform() -> None:
    program = model("g () => (float[N] y) { y = RandomUniform<low=-3.0, high=5.0, shape=[4000]>() }", opset=24)
    LegalizeRandomDraws()(program)
    found = drawn(program)
    assert -3 <= found.min() < -2.9 and 4.9 < found.max() < 5


def test_a_draw_with_a_kernel_stays() -> None:
    program = uniform("float", 20)
    assert not LegalizeRandomDraws()(program).modified
    assert [node.op_type for node in program.graph] == ["RandomUniform", "Cast"]


def test_a_draw_with_a_seed_stays() -> None:
    """Its numbers must be the same at every run, and those of a Dropout are not."""
    program = model("g () => (float[4] y) { y = RandomUniform<seed=1.0, shape=[4]>() }", opset=23)
    assert not LegalizeRandomDraws()(program).modified


def test_scalars_and_empty_tensors() -> None:
    program = model("g (float[N] x) => (float[N] y) { y = RandomUniformLike(x) }", opset=23)
    LegalizeRandomDraws()(program)
    assert drawn(program, torch.zeros(0)).shape == (0,)
    program = model("g (float x) => (float y) { y = RandomNormalLike(x) }", opset=23)
    LegalizeRandomDraws()(program)
    assert np.isfinite(drawn(program, torch.tensor(0.0)).item())
