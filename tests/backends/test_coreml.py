"""The target coreml, which is compared with its published table only."""

import pytest
import torch

import fx_onnx
from tests.exporting import StaticCache, exported, operators, padded_maximum


def test_a_node_without_a_kernel_is_noted_but_not_refused() -> None:
    program = exported(lambda x: (x > 0).nonzero(), torch.ones(2, 3), target="coreml")
    assert "NonZero" in [each.operator for each in program.supports("coreml").missing]
    assert exported(lambda x: x.argmax(1), torch.ones(2, 3), target="coreml").supports("coreml").share == 1


def test_the_opset() -> None:
    assert exported(padded_maximum, torch.ones(2, 3), target="coreml").model.graph.opset_imports[""] == 18


@pytest.mark.parametrize("name", ["coreml", "tensorrt", "webnn"])
def test_the_number_of_keys_depends_on_no_data(name: str) -> None:
    """Runtimes of static shapes read all keys of a static cache."""
    args = torch.randn(1, 2, 2, 4), torch.randn(1, 2, 8, 4), torch.tensor(3)
    options = {"target": name, "opset_version": 23, "dynamic_shapes": ({2: "length"}, None, None), "verbose": False}
    program = fx_onnx.export(StaticCache().eval(), args, **options)
    assert ("Attention" in operators(program)) == (name != "tensorrt")  # it has no kernel for Attention with a mask
    assert "Slice" not in operators(program)
