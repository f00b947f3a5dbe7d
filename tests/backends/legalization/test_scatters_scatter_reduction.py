"""A scatter with a reduction equals its expansion without one: duplicates, negative indices, no updates, integers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.scatters import legalize_scatter_nd
from fx_onnx.messages.errors import OnnxExporterError
from tests.compare import assert_close
from tests.passes.checking import model, run

ELEMENTS = "({0}[A] x, int64[N] i, {0}[N] u) => ({0}[A] y) {{ y = ScatterElements<reduction=R>(x, i, u) }}"
ELEMENTS_OF_AXIS = """(float[A,B,C] x, int64[N,M,K] i, float[N,M,K] u) => (float[A,B,C] y)
{ y = ScatterElements<axis=-2, reduction=R>(x, i, u) }"""
ROWS = "(float[A,B] x, int64[N,1] i, float[N,B] u) => (float[A,B] y) { y = ScatterND<reduction=R>(x, i, u) }"
TUPLES = "(float[A,B,C] x, int64[N,M,2] i, float[N,M,C] u) => (float[A,B,C] y) { y = ScatterND<reduction=R>(x, i, u) }"


def integers(*sizes: int) -> Tensor:
    return torch.randint(-(2**62), 2**62, sizes)


def near_two_to_the_31(*sizes: int) -> Tensor:
    return torch.randint(2**31 - 9, 2**31 + 9, sizes)


@pytest.mark.parametrize(
    ("step", "reduction"),
    [(OpsetStep(15), "add"), (OpsetStep(15), "mul"), (OpsetStep(17), "max"), (OpsetStep(17), "min")],
)
@pytest.mark.parametrize(
    ("text", "random", "x", "indices", "updates"),
    [
        (ELEMENTS.format("float"), torch.randn, (5,), (20,), (20,)),
        (ELEMENTS.format("int64"), integers, (5,), (20,), (20,)),
        (ELEMENTS.format("int64"), near_two_to_the_31, (5,), (20,), (20,)),
        (ELEMENTS.format("float"), torch.randn, (5,), (0,), (0,)),
        (ELEMENTS_OF_AXIS, torch.randn, (4, 5, 3), (3, 9, 2), (3, 9, 2)),
        (ROWS, torch.randn, (5, 3), (13, 1), (13, 3)),
        (ROWS, torch.randn, (5, 3), (0, 1), (0, 3)),
        (TUPLES, torch.randn, (5, 5, 2), (6, 7, 2), (6, 7, 2)),
    ],
)
def test_equals_the_operator(
    step: OpsetStep,
    reduction: str,
    text: str,
    random: Callable[..., Tensor],
    x: tuple[int, ...],
    indices: tuple[int, ...],
    updates: tuple[int, ...],
) -> None:
    torch.manual_seed(0)
    inputs = [random(*x), torch.randint(-5, 5, indices), random(*updates)]
    program = model("g " + text.replace("R>", f'"{reduction}">'), opset=step.opset + 1)
    want = run(program, inputs)
    step(program)
    assert "reduction" not in {name for node in program.graph for name in node.attributes}
    assert_close(run(program, inputs), want, 1e-5)


@pytest.mark.parametrize(("axis", "sizes"), [(0, (6, 3)), (1, (4, 7))])
def test_an_expanded_index_writes_whole_rows(axis: int, sizes: tuple[int, int]) -> None:
    """The positions are sorted once for each row, not for each element."""
    index = torch.tensor([0, 2, -1, 2, 0, 0, 1])[: sizes[axis]].unsqueeze(1 - axis)
    before, after = (",".join(map(str, each)) for each in (index.shape, sizes))
    text = f"""(float[4,3] x, int64[{before}] i, float[{after}] u) => (float[4,3] y) <int64[2] s = {{{after}}}> {{
      e = Expand(i, s)\n y = ScatterElements<axis={axis}, reduction="add">(x, e, u)
    }}"""
    program = model(f"g {text}", opset=16)
    inputs = [torch.randn(4, 3), index, torch.randn(sizes)]
    want = run(program, inputs)
    OpsetStep(15)(program)
    assert "GatherElements" not in [node.op_type for node in program.graph]
    assert_close(run(program, inputs), want, 1e-5)


def test_no_round_without_duplicates() -> None:
    """The Loop starts with a false condition, so the sorted updates are written as they are."""
    program = model("g " + ELEMENTS.format("float").replace("R>", '"add">'), opset=16)
    OpsetStep(15)(program)
    loop = next(node for node in program.graph if node.op_type == "Loop")
    program.graph.outputs.append(loop.inputs[1])
    for indices, rounds in ((torch.tensor([3, 0, 1]), False), (torch.tensor([3, 0, 3]), True)):
        assert bool(run(program, [torch.zeros(5), indices, torch.ones(3)])[1]) == rounds


def test_a_scatter_without_reduction_stays() -> None:
    program = model("g " + ELEMENTS.format("float").replace(", reduction=R", "").replace("<reduction=R>", ""), opset=16)
    OpsetStep(15)(program)
    assert [node.op_type for node in program.graph] == ["ScatterElements"]


def test_an_unknown_rank_is_refused() -> None:
    program = model("g " + ROWS.replace("R>", '"add">'), opset=16)
    program.graph.inputs[0].shape = None
    with pytest.raises(OnnxExporterError, match="the rank of its input is not known"):
        OpsetStep(15)(program)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize(
    ("text", "x", "indices", "updates", "expected"),
    [
        (ROWS, (5, 3), (13, 1), (13, 3), ["Reshape", "Reshape", "Shape", "Expand", "ScatterElements"]),
        (ROWS, (5, 3), (0, 1), (0, 3), ["Reshape", "Reshape", "Shape", "Expand", "ScatterElements"]),
        (TUPLES, (5, 5, 2), (6, 7, 2), (6, 7, 2), None),
        ("(float[A,B] x, int64[N,2] i, float[N] u) => (float[A,B] y) { y = ScatterND<reduction=R>(x, i, u) }",
         (5, 5), (9, 2), (9,),
         ["Shape", "Size", "Range", "Reshape", "GatherND", "Reshape", "ScatterElements", "Shape", "Reshape"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["double", "int64"])
def test_a_scatter_of_rows_is_one_of_elements(
    dtype: str,
    text: str,
    x: tuple[int, ...],
    indices: tuple[int, ...],
    updates: tuple[int, ...],
    expected: list[str] | None,
    reduction: str,
) -> None:
    inputs = [integers(*x), torch.randint(-5, 5, indices), integers(*updates)]
    if dtype == "double":
        inputs = [each if place == 1 else each.double() / 2**62 for place, each in enumerate(inputs)]
    text = text.replace("float", dtype).replace("R>", f'"{reduction}">')
    program = model("g " + text, opset=18)
    want = run(program, inputs)
    assert legalize_scatter_nd(program).modified
    found = [node.op_type for node in program.graph]
    assert "ScatterND" not in found
    assert expected is None or found == expected
    assert_close(run(program, inputs), want)


@pytest.mark.parametrize(("dtype", "reduction"), [("float", "add"), ("float16", "add"), ("int64", "none")])
def test_a_scatter_that_cuda_computes_stays(dtype: str, reduction: str) -> None:
    text = ROWS.replace("float", dtype).replace("R>", f'"{reduction}">')
    assert not legalize_scatter_nd(model("g " + text, opset=18)).modified
