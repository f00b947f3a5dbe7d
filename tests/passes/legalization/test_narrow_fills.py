"""ConstantOfShape of narrow dtypes."""

import pytest
import torch

from fx_onnx.passes.legalization.narrow_fills import LegalizeNarrowFills
from tests.passes.checking import check, model


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [("int8", "-3", ["ConstantOfShape", "Cast"]), ("uint8", "200", ["ConstantOfShape", "Cast"]),
     ("int64", "7", ["ConstantOfShape"])],
)  # fmt: skip
def test_fill(dtype: str, number: str, expected: list[str]) -> None:
    value = f"value = {dtype}[1] {{{number}}}"
    program = model(f"g (int64[2] s) => ({dtype}[N,M] y) {{ y = ConstantOfShape<{value}>(s) }}")
    check(program, LegalizeNarrowFills(), [torch.tensor([2, 3])], expected)
