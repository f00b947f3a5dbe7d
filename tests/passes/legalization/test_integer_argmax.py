"""ArgMax and ArgMin of integers as TopK."""

import pytest
import torch

from fx_onnx.passes.legalization.integer_argmax import LegalizeIntegerArgMax
from tests.passes.checking import check, model

X = torch.tensor([[3, 7, 7, -1], [0, 0, 0, 0]])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_first_of_equal_elements(op_type: str, axis: int, dtype: str) -> None:
    x = X.to(getattr(torch, dtype))
    text = f"g ({dtype}[M,N] x) => (int64[K] y) {{ y = {op_type}<axis={axis}, keepdims=0>(x) }}"
    check(model(text), LegalizeIntegerArgMax(), [x], ["TopK", "Squeeze"])


def test_kept_dims_need_no_squeeze() -> None:
    text = "g (int64[M,N] x) => (int64[M,1] y) { a = ArgMax<axis=1>(x)\n y = Neg(a) }"
    check(model(text), LegalizeIntegerArgMax(), [X], ["TopK", "Neg"])


@pytest.mark.parametrize(("dtype", "last"), [("float", 0), ("int64", 1)])
def test_what_stays(dtype: str, last: int) -> None:
    text = f"g ({dtype}[M,N] x) => (int64[M,1] y) {{ y = ArgMax<axis=1, select_last_index={last}>(x) }}"
    x = X.float() if dtype == "float" else X
    check(model(text), LegalizeIntegerArgMax(), [x], ["ArgMax"])
