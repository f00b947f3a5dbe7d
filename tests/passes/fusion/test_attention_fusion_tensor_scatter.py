"""Fusion of writes at consecutive positions into TensorScatter."""

import pytest
import torch

from fx_onnx.passes.fusion.attention_fusion import fuse_tensor_scatter, match_positions
from tests.passes.checking import check, model

CONSTANTS = (
    "<int64 zero = {0}, int64 one = {1}, int64[1] axis = {2}, int64[3] others = {0, 1, 3}, int64[2] first = {0, 1}, "
    "int64[1] rows = {2}, int64[1] size = {4}, int64[N,3,8,4] y, int64[N,3,L,4] i>"
)
INPUTS = "float[N,3,8,4] cache, float[N,3,L,4] x, int64 start, int64 n"
INDEX = "u = Unsqueeze(p, others)\n s = Shape(x)\n i = Expand(u, s)\n"
POSITIONS = "r = Range(zero, n, one)\n p = Add(r, start)\n"
WRITE = "y = ScatterElements<axis=2>(cache, i, x)"
ARGS = [torch.randn(2, 3, 8, 4), torch.randn(2, 3, 5, 4), torch.tensor(3), torch.tensor(5)]


def written(text: str, inputs: str = INPUTS, opset: int = 24) -> object:
    return model(f"g ({inputs}) => (float[N,3,8,4] y) {CONSTANTS} {{ {text} }}", opset=opset)


@pytest.mark.parametrize("axis", [2, -2])
def test_at_a_start(axis: int) -> None:
    program = written(POSITIONS + INDEX + WRITE.replace("=2", f"={axis}"))
    check(program, fuse_tensor_scatter, ARGS, ["Shape", "Expand", "TensorScatter"])


def test_from_the_first_place_on() -> None:
    """A prefill writes at 0: TensorScatter needs no indices."""
    program = written("p = Range(zero, n, one)\n" + INDEX + WRITE)
    check(program, fuse_tensor_scatter, ARGS, ["TensorScatter"])


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        (POSITIONS + INDEX + WRITE.replace("<", '<reduction="add", '), INPUTS),
        (POSITIONS + INDEX + WRITE, INPUTS.replace("[N,3,L,4] x", "[N,2,L,4] x")),
        (POSITIONS + INDEX + WRITE, INPUTS.replace("[N,3,L,4] x", "[M,3,L,4] x")),
        ("p = Identity(start)\n" + INDEX + WRITE, INPUTS.replace("int64 start", "int64[L] start")),
        (f"s = Shape(x)\n i = Expand(start, s)\n{WRITE}", INPUTS.replace("int64 start", "int64[1,1,L,1] start")),
        (POSITIONS + INDEX.replace("others", "last") + WRITE.replace("=2", "=3"), f"{INPUTS}, int64[3] last"),
    ],
    ids=["sum", "some heads", "other batch", "any positions", "no range", "unknown axes"],
)
def test_declined(text: str, inputs: str) -> None:
    assert not fuse_tensor_scatter(written(text, inputs)).modified


def test_the_batch_is_no_length() -> None:
    text = f"{POSITIONS} u = Unsqueeze(p, columns)\n s = Shape(x)\n i = Expand(u, s)\n y = ScatterElements(cache, i, x)"
    program = model(f"""g (float[8,4] cache, float[L,4] x, int64 start, int64 n) => (float[8,4] y)
      <int64 zero = {{0}}, int64 one = {{1}}, int64[1] columns = {{1}}> {{ {text} }}""", opset=24)  # fmt: skip
    assert not fuse_tensor_scatter(program).modified


def test_older_opsets_have_no_tensor_scatter() -> None:
    assert not fuse_tensor_scatter(written(POSITIONS + INDEX + WRITE, opset=23)).modified


CONSTANTS_POSITIONS = "<int64 zero = {0}, int64 one = {1}, int64 two = {2}>"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("p = Range(zero, n, one)", None),
        ("r = Range(zero, n, one)\n p = Add(r, start)", "start"),
        ("r = Range(zero, n, one)\n p = Add(start, r)", "start"),
    ],
)
def test_matched(text: str, start: str | None) -> None:
    graph = model(f"g (int64 n, int64 start) => (int64[N] p) {CONSTANTS_POSITIONS} {{ {text} }}").graph
    found = match_positions(graph.outputs[0])
    assert found is not None
    assert (found.start.name if found.start is not None else None, found.length.name) == (start, "n")


@pytest.mark.parametrize(
    "text",
    [
        "p = Range(one, n, one)",
        "p = Range(zero, n, two)",
        "r = Range(zero, n, one)\n p = Add(r, r)",
        "r = Range(zero, n, one)\n p = Add(r, starts)",
        "r = Range(zero, n, one)\n p = Mul(r, start)",
    ],
)
def test_not_matched(text: str) -> None:
    """Another first position or step, and a start that is not one number."""
    graph = model(f"g (int64 n, int64 start, int64[1] starts) => (int64[N] p) {CONSTANTS_POSITIONS} {{ {text} }}").graph
    assert match_positions(graph.outputs[0]) is None
