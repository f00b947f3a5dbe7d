"""Values that are computed from weights alone."""

import pytest
import torch
from onnx_ir import DataType

from fx_onnx.onnx_model.weights import as_torch
from fx_onnx.quantized_weights.constant_computations import computation
from tests.passes.checking import model, run

WEIGHTS = {
    "a": torch.randint(-128, 128, (4, 6), dtype=torch.int8),
    "s": torch.rand(6),
    "h": torch.rand(4, 2).half(),
    "z": torch.randint(-128, 128, (6,), dtype=torch.int8),
}


@pytest.mark.parametrize(
    "steps",
    [
        "y = DequantizeLinear(a, s)",
        "y = DequantizeLinear<axis=1>(a, s, z)",
        "f = Cast<to=1>(h)\n d = DequantizeLinear<axis=1, block_size=3>(a, f)\n y = Neg(d)",
        "f = Cast<to=1>(h)\n d = DequantizeLinear<axis=-1, block_size=4>(a, f)\n y = Transpose<perm=[1, 0]>(d)",
    ],
)
def test_a_value(steps: str) -> None:
    program = model(f"g (float[1] x) => (float[N,M] y) {{ {steps} }}", WEIGHTS, opset=23)
    expected = run(program, [torch.zeros(1)])[0]
    value = computation(program.graph.outputs[0])
    assert value is not None and tuple(value.result().shape) == tuple(expected.shape)
    tensor = value.tensor(DataType.FLOAT)
    assert torch.equal(as_torch(tensor), expected) and tensor.shape.numpy() == tuple(expected.shape)


@pytest.mark.parametrize(
    "steps",
    ["y = Mul(s, x)", "y = DequantizeLinear<axis=1>(a, t)", "q = Cast<to=22>(s)\n y = Cast<to=1>(q)", "y = Erf(s)"],
)
def test_what_is_not_computed(steps: str) -> None:
    """Tests an input, a scale of float16, 4 bits and an operator that is not in the table."""
    program = model(f"g (float[6] x) => (float[N] y) {{ {steps} }}", WEIGHTS | {"t": torch.rand(6).half()}, opset=23)
    assert computation(program.graph.outputs[0]) is None
