"""JitScalarType: the numbers, the names and the dtypes of torch.onnx's own enumeration."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from fx_onnx import ArgumentError
from fx_onnx.compat.jit_scalar_type import JitScalarType
from fx_onnx.compat.symbolic_graph import SymbolicValue
from tests.translation.emitters import emitter, value


@pytest.mark.parametrize("scalar_type", list(JitScalarType)[:-1])
def test_every_type_is_that_of_torch(scalar_type: JitScalarType) -> None:
    theirs = torch.onnx.JitScalarType(int(scalar_type))
    assert (theirs.name, theirs.scalar_name(), theirs.torch_name()) == (
        scalar_type.name, scalar_type.scalar_name(), scalar_type.torch_name(),
    )  # fmt: skip
    assert theirs.dtype() == scalar_type.dtype()
    assert int(theirs.onnx_type()) == int(scalar_type.onnx_type())
    assert theirs.onnx_compatible() == scalar_type.onnx_compatible()
    assert JitScalarType.from_dtype(scalar_type.dtype()) is scalar_type
    assert JitScalarType.from_name(scalar_type.scalar_name()) is scalar_type
    assert JitScalarType.from_name(scalar_type.torch_name()) is scalar_type


def test_from_a_value() -> None:
    op = emitter()
    half = SymbolicValue(value(op, ir.DataType.FLOAT16, 2), op)
    unknown = SymbolicValue(ir.Value(name="unknown"), op)
    assert JitScalarType.from_value(half) is JitScalarType.HALF
    assert torch.onnx.JitScalarType.from_value(half).name == "HALF"
    assert JitScalarType.from_value(torch.tensor(True)) is JitScalarType.BOOL
    assert JitScalarType.from_value(unknown, JitScalarType.UNDEFINED) is JitScalarType.UNDEFINED
    assert JitScalarType.from_value(None, JitScalarType.UNDEFINED) is JitScalarType.UNDEFINED


def test_from_an_onnx_type() -> None:
    assert JitScalarType.from_onnx_type(7) is JitScalarType.INT64
    assert JitScalarType.from_onnx_type(ir.DataType.INT8) is JitScalarType.INT8


@pytest.mark.parametrize(
    "call",
    [
        lambda: JitScalarType.from_name("Number"),
        lambda: JitScalarType.from_dtype(None),
        lambda: JitScalarType.from_onnx_type(8),
        lambda: JitScalarType.from_value(3),
        lambda: JitScalarType.UNDEFINED.dtype(),
    ],
)
def test_refusals(call: object) -> None:
    with pytest.raises(ArgumentError, match=r"scalar type|not known|no dtype"):
        call()  # type: ignore[operator]
