"""The tanh approximation of Gelu after a bias is kept by ONNX Runtime's optimizer of transformers."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import fx_onnx
from fx_onnx.passes.legalization.tanh_gelu import LegalizeTanhGelu
from tests.passes.checking import check, model

X, WEIGHTS = torch.randn(2, 3, 4), {"w": torch.randn(4, 5), "b": torch.randn(5)}
EXPANDED = ["MatMul", "Add", "Pow", "Mul", "Add", "Mul", "Tanh", "Add", "Mul", "Mul"]


def graph(addends: str = "m, b", attributes: str = '<approximate = "tanh">') -> str:
    return f"""g (float[N,3,4] x) => (float[N,3,5] z) {{
        m = MatMul(x, w)\n y = Add({addends})\n z = Gelu{attributes}(y)
    }}"""


@pytest.mark.parametrize("addends", ["m, b", "b, m"])
def test_expanded(addends: str) -> None:
    check(model(graph(addends), WEIGHTS), LegalizeTanhGelu(), [X], EXPANDED, 1e-5)


def test_other_forms_stay() -> None:
    """The exact Gelu, and a sum without a bias of one axis."""
    assert not LegalizeTanhGelu()(model(graph(attributes=""), WEIGHTS)).modified
    assert not LegalizeTanhGelu()(model(graph("m, m"), WEIGHTS)).modified
    assert not LegalizeTanhGelu()(model(graph(), {**WEIGHTS, "b": torch.randn(3, 5)})).modified


def test_the_optimizer_of_transformers_keeps_the_approximation(tmp_path: Path) -> None:
    """BiasGelu would differ by 5e-4."""
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer", reason="it needs packages of its own")
    module = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.GELU("tanh"), torch.nn.Linear(64, 4)).eval()
    x = torch.randn(2, 3, 4) * 2
    fx_onnx.export(module, (x,), tmp_path / "m.onnx", verbose=False, input_names=["x"])
    optimized = optimizer.optimize_model(str(tmp_path / "m.onnx"), "gpt2", num_heads=1, hidden_size=4, opt_level=0)
    operators = [node.op_type for node in optimized.model.graph.node]
    assert "FastGelu" in operators
    session = onnxruntime.InferenceSession(optimized.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(found, module(x).detach().numpy(), atol=2e-5)
