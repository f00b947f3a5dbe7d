"""The sizes that a value keeps in torch's terms."""

import onnx_ir as ir
import torch

from fx_onnx.translation.known_sizes import known_sizes, record_sizes
from tests.translation.emitters import symbolic_sizes


def test_sizes_are_recorded() -> None:
    a, _ = symbolic_sizes()
    value = ir.Value(name="x")
    assert known_sizes(value) is None
    assert record_sizes(value, [a, 3]) is value
    found = known_sizes(value)
    assert found == (a, 3)
    assert isinstance(found[0], torch.SymInt)


def test_a_symbolic_size_that_is_constant_becomes_an_int() -> None:
    a, _ = symbolic_sizes()
    (size,) = known_sizes(record_sizes(ir.Value(name="x"), [a - a + 4]))
    assert type(size) is int
    assert size == 4
