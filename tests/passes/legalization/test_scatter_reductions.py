"""Scatters that combine elements as reductions."""

import pytest
import torch

from fx_onnx.passes.legalization.scatter_reductions import LegalizeScatterReductions
from tests.passes.checking import check, model

X = torch.tensor([[1.0, -2.0], [0.5, 4.0], [3.0, 0.0]])
U = torch.tensor([[2.0, 1.0], [-3.0, 8.0], [0.25, 5.0], [7.0, -1.0]])
PLACES = torch.tensor([[2], [0], [2], [-1]])
REDUCTION = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}
MASK = ["Shape", "Squeeze", "Range", "Unsqueeze", "Greater", "Add", "Where", "Equal", "Where", "Unsqueeze", "Concat"]


@pytest.mark.parametrize("reduction", REDUCTION)
def test_rows(reduction: str) -> None:
    """Two updates of one row are combined, a negative index counts from the end, and a row without updates stays."""
    scatter = f'ScatterND<reduction="{reduction}">(x, i, u)'
    text = f"g (float[M,2] x, int64[E,1] i, float[E,2] u) => (float[M,2] y) {{ y = {scatter} }}"
    expected = [*MASK, "Squeeze", "Unsqueeze", REDUCTION[reduction]]
    check(model(text, opset=18), LegalizeScatterReductions(), [X, PLACES, U], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("reduction", REDUCTION)
def test_elements_of_a_vector(reduction: str, dtype: torch.dtype) -> None:
    name = "float" if dtype == torch.float32 else "int64"
    scatter = f'ScatterElements<reduction="{reduction}">(x, i, u)'
    text = f"g ({name}[M] x, int64[E] i, {name}[E] u) => ({name}[M] y) {{ y = {scatter} }}"
    inputs = [X[:, 1].to(dtype), PLACES[:, 0], U[:, 0].to(dtype)]
    check(model(text, opset=18), LegalizeScatterReductions(), inputs, [*MASK, REDUCTION[reduction]])


def test_a_place_of_several_axes_stays() -> None:
    text = 'g (float[M,N] x, int64[E,2] i, float[E] u) => (float[M,N] y) { y = ScatterND<reduction="add">(x, i, u) }'
    inputs = [X, torch.tensor([[0, 1], [0, 1]]), torch.tensor([1.0, 2.0])]
    check(model(text, opset=18), LegalizeScatterReductions(), inputs, ["ScatterND"])


def test_overwriting_stays() -> None:
    text = "g (float[M,2] x, int64[E,1] i, float[E,2] u) => (float[M,2] y) { y = ScatterND(x, i, u) }"
    check(model(text, opset=18), LegalizeScatterReductions(), [X, PLACES[:2], U[:2]], ["ScatterND"])
