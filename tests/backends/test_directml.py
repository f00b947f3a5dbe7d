"""The target directml, which is compared with the kernels that its library registers only."""

import torch

from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.exporting import exported, padded_maximum
from tests.passes.checking import model


def test_the_opset() -> None:
    program = exported(padded_maximum, torch.ones(2, 3), target="directml")
    assert program.model.graph.opset_imports[""] == 18
    assert program.supports("directml").share == 1


def test_the_table_has_versions_and_dtypes() -> None:
    """Erf of float16, but not of float64. MaxPool up to opset 21, and no Unique."""
    directml = find_target("directml")
    for dtype, reason in {"float16": "", "double": "no kernel for double"}.items():
        text = f"g ({dtype}[N] x) => ({dtype}[N] y) {{ y = Erf(x) }}"
        assert [each.reason for each in support(model(text), directml).missing] == [reason] * bool(reason)
    text = "g (float[N] x) => (float[M] y) { y, i, j, n = Unique(x) }"
    assert [each.operator for each in support(model(text), directml).missing] == ["Unique"]
    pooled = exported(lambda x: torch.nn.functional.max_pool1d(x, 2), torch.ones(2, 3, 4), opset_version=23)
    assert pooled.supports("directml").advice == ("opset_version=21 has kernels for MaxPool",)
