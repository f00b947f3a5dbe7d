import pytest
import torch

from fx_onnx.passes.cleanup.selects import SplitSelects
from tests.passes.checking import check, model, origins

X = torch.randn(2, 3, 4)
CONSTANTS = "<int64 i = {0}, int64 j = {1}, int64 k = {-1}, int64[1] one = {1}>"


def graph(reads: str, outputs: str = "float[N,4] a, float[N,4] b, float[N,4] c") -> str:
    return f"g (float[N,3,4] x) => ({outputs}) {CONSTANTS} {{ {reads} }}"


READS = "a = Gather<axis = 1>(x, i)\n b = Gather<axis = 1>(x, j)\n c = Gather<axis = -2>(x, k)"


def test_all_elements() -> None:
    """Indices may be negative, and several reads may have the same index."""
    program = model(graph(READS))
    check(program, SplitSelects(), [X], ["Split", "Squeeze", "Squeeze", "Squeeze"])
    assert origins(program, "b") == {"%b"}
    outputs = "float[N,4] a, float[N,4] b, float[N,4] c, float[N,4] d"
    program = model(graph(READS + "\n d = Gather<axis = 1>(x, i)", outputs))
    check(program, SplitSelects(), [X], ["Split", *["Squeeze"] * 4])


@pytest.mark.parametrize(
    "reads",
    [
        READS.replace("(x, k)", "(x, j)"),  # not all elements
        READS.replace("axis = 1>(x, j)", "axis = 0>(x, j)"),  # another axis
        "s = Relu(x)\n" + READS.replace("(x, j)", "(s, j)"),  # another tensor
        READS.replace("b = Gather<axis = 1>(x, j)", "e = Gather<axis = 1>(x, one)\n b = Squeeze(e, one)"),  # 1-d index
    ],
)
def test_declined(reads: str) -> None:
    assert not SplitSelects()(model(graph(reads, "float[N,4] a, float b, float[N,4] c"))).modified
