"""Gathers and scatters."""

import pytest
import torch
from onnx.reference import ReferenceEvaluator

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.scatters import legalize_gather_elements
from fx_onnx.onnx_model import metadata
from tests.exporting import exported
from tests.passes.checking import check, check_equal, model


@pytest.mark.parametrize(("axis", "shape"), [(0, (40, 2)), (1, (2, 40)), (-1, (2, 3, 40)), (0, (40,))])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_long_axes(axis: int, shape: tuple[int, ...], dtype: str) -> None:
    """Also with indices that are shorter along the other axes, and with negative ones."""
    text = f"""g (float[{",".join("ABC"[: len(shape)])}] x, {dtype}[{",".join("DEF"[: len(shape)])}] i)
      => (float[{",".join("DEF"[: len(shape)])}] y) {{ y = GatherElements<axis={axis}>(x, i) }}"""
    indices = torch.randint(-40, 40, shape, dtype=getattr(torch, dtype))[:1]
    program = model(text)
    check_equal(program, legalize_gather_elements, [torch.randn(shape), indices])
    assert "GatherND" in [node.op_type for node in program.graph]


def test_short_axes_stay() -> None:
    text = "g (float[N,31] x, int64[N,2] i) => (float[N,2] y) { y = GatherElements<axis=1>(x, i) }"
    assert not legalize_gather_elements(model(text)).modified


def test_the_reference_evaluator_is_right() -> None:
    """A row of indices, of which the evaluator's GatherElements would read the first."""
    x, i = torch.randn(2, 70), torch.randint(0, 70, (2, 5))
    program = exported(lambda x: x.gather(1, i), x, target="reference")
    (found,) = ReferenceEvaluator(program.model_proto).run(None, {"x": x.numpy()})
    assert torch.equal(torch.from_numpy(found), x.gather(1, i))


X = torch.randn(2, 3, 4)


def test_the_indices_of_an_embedding_stay() -> None:
    program = model("g (float[A,B] x, int64[N] i) => (float[N,B] y) { y = Gather(x, i) }", opset=11)
    program.graph[0].metadata_props[metadata.FX_NODE] = "%y : call_function[target=torch.ops.aten.embedding.default]"
    check(program, OpsetStep(10), [X[0], torch.tensor([1, 0])], ["Gather"])
