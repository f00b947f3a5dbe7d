"""The target tensorrt, which is compared with the table of its parser and with published facts only."""

import pytest
import torch

from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.exporting import exported, padded_maximum
from tests.passes.checking import model


def test_boolean_masks_are_read_without_compress() -> None:
    target = find_target("tensorrt")
    text = "g (float[N] x, bool[N] c) => (float[M] y) { y = Compress(x, c) }"
    assert [each.operator for each in support(model(text), target).missing] == ["Compress"]
    assert exported(lambda x: x[x > 0], torch.ones(2, 3), target="tensorrt").supports(target).missing == ()


def test_the_table_is_that_of_the_parser_for_rtx() -> None:
    """It has no versions and no dtypes, so a model is supported at every opset."""
    program = exported(lambda x: (x > 0).nonzero(), torch.ones(2, 3))
    assert program.supports("tensorrt")
    assert "TensorRT for RTX, ONNX parser 1." in str(program.supports("tensorrt"))
    text = "g (float[N] x) => (float[M] y) { y, i, j, n = Unique(x) }"
    assert support(model(text), find_target("tensorrt")).missing[0].reason == "no kernel"


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("QuantizeLinear(x, s, zero)", ""),
        ("QuantizeLinear(x, s, three)", "the zero point is not 0"),
        ("QuantizeLinear<axis=0>(x, two, zeros)", "an activation has several scales"),
        ("QuantizeLinear(x, largest, zero)", "the scale is computed"),
    ],
)
def test_quantization_is_symmetric(node: str, reason: str) -> None:
    """The rules of TensorRT's documentation; no model was run."""
    text = f"""g (float[2,3] x) => (int8[2,3] y, float largest) <float s = {{0.5}}, float[2] two = {{0.5, 0.25}},
      int8 zero = {{0}}, int8 three = {{3}}, int8[2] zeros = {{0, 0}}> {{
      largest = ReduceMax<keepdims=0>(x)\n y = {node}
    }}"""
    found = support(model(text), find_target("tensorrt")).missing
    assert [each.reason.startswith(reason) for each in found] == ([True] if reason else [])


def test_weights_may_have_a_scale_for_each_channel() -> None:
    text = """g () => (float[2,3] y) <int8[2,3] w = {1, 2, 3, 4, 5, 6}, float[2] s = {0.5, 0.25}> {
      y = DequantizeLinear<axis=0>(w, s)
    }"""
    assert support(model(text), find_target("tensorrt")).missing == ()


def test_the_opset_of_the_target_and_of_the_caller() -> None:
    x = torch.ones(2, 3)
    assert exported(padded_maximum, x, target="tensorrt").model.graph.opset_imports[""] == find_target("tensorrt").opset
    assert exported(padded_maximum, x, target="tensorrt", opset_version=21).model.graph.opset_imports[""] == 21
