"""Reads and writes by index tensors."""

import pytest
import torch
from torch.export import Dim

import fx_onnx
from tests.compare import assert_close
from tests.harness import Case, arg, b8, cases, check, f16, f32, i32, i64

aten = torch.ops.aten


def at(*shape: int, high: int = 1, low: int = 0) -> object:
    """Returns an index argument that is valid for sizes above ``high``."""
    return i64(*shape, low=low, high=high)


def batch_rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x[torch.arange(x.shape[0]), index]


@cases(
    [
        Case(aten.index.Tensor, f32(3, 4), [at(5, high=2, low=-3)], emits=["Gather"]),
        Case(aten.index.Tensor, f32(3, 4), [None, at(2, 2)], emits=["Gather"]),
        Case(aten.index.Tensor, f32(3, 4), [at()], emits=["Gather"]),
        Case(aten.index.Tensor, f32(3, 4), [at(0)], emits=["Gather"]),
        Case(aten.index.Tensor, f32(3, 4), [i32(2, low=0, high=1)], emits=["Gather"]),
        Case(aten.index.Tensor, f32(3, 4), [at(5), at(5, low=-2)]),
        Case(aten.index.Tensor, f32(3, 4), [at(5, 1), at(2)]),
        Case(
            aten.index.Tensor,
            f32(2, 3, 4),
            [None, at(5), at(5)],
            emits=["Transpose", "Unsqueeze", "Unsqueeze", "Concat", "GatherND", "Transpose"],
        ),
        Case(aten.index.Tensor, f32(2, 3, 4), [at(5), None, at(5)]),
        Case(aten.index.Tensor, f32(2, 3, 4, 2), [None, at(2, 2), at(2), None]),
        Case(aten.index.Tensor, f16(2, 3), [at(2), at(2)]),
        Case(aten.index.Tensor, f32(3), [b8(3, fixed=True)], dynamic=False, emits=["NonZero", "Squeeze", "Gather"]),
        Case(aten.index.Tensor, f32(3, 4), [b8(3, 4)]),
        Case(aten.index.Tensor, f32(2, 3, 4), [None, b8(3, 4)]),
        Case(aten.index.Tensor, f32(2, 3, 4), [b8(2, 3)]),
        Case(aten.index.Tensor, f32(3, 4), [None, b8(4)], emits=["NonZero", "Squeeze", "Gather"]),
        Case(batch_rows, f32(3, 4), at(3)),
        Case(aten._unsafe_index.Tensor, f32(3, 4), [None, at(2)]),
    ]
)
def test_reads(case: Case) -> None:
    check(case)


PLACES = i64(3, values=(2, 0, 1))


@cases(
    [
        Case(aten.index_put.default, f32(4, 5), [PLACES], f32(3, 5)),
        Case(aten.index_put.default, f32(4, 5), [PLACES], f32()),
        Case(aten.index_put.default, f32(4, 5), [PLACES], f32(5), dynamic=False),
        Case(aten.index_put.default, f32(4, 5), [None, PLACES], f32(4, 3)),
        Case(aten.index_put.default, f32(4, 5), [None, PLACES], f32(3), dynamic=False),
        Case(aten.index_put.default, f32(4, 5), [PLACES, PLACES], f32(3)),
        Case(aten.index_put.default, f32(4, 5, 6), [PLACES, None, PLACES], f32(3, 5), dynamic=False),
        Case(aten.index_put.default, f32(2, 5, 6), [None, PLACES, PLACES], f32(2, 3), dynamic=False),
        Case(aten.index_put.default, f32(4, 5), [at(6)], f32(6, 5), True, dynamic=False),
        Case(aten.index_put.default, i64(4, 5), [at(6), at(6)], i64(1), True, dynamic=False),
        Case(aten.index_put.default, f32(4, 5), [b8(4, 5)], f32(), emits=["Where"]),
        Case(aten.index_put.default, f32(4, 5), [b8(4)], f32(), emits=["Unsqueeze", "Where"]),
        Case(aten.index_put.default, f32(4, 5), [b8(4)], f32(5), dynamic=False),
        Case(aten.index_put.default, f32(4, 5), [b8(4)], f32(1, 5), dynamic=False),
        Case(aten.index_put.default, f32(4, 5), [b8(4, values=(True, False))], f32(2, 5), dynamic=False),
        Case(aten.index_put.default, f32(4, 5), [b8(4, 5, values=(True, False))], f32(10), dynamic=False),
        Case(aten.index_put.default, f32(4, 5), [None, b8(5, values=(True, False))], f32(4, 3), dynamic=False),
        Case(
            aten.index_put.default,
            f32(4, 5),
            [b8(4, values=(True, False)), i64(2, values=(1, 3))],
            f32(2),
            dynamic=False,
        ),
    ]
)
def test_writes(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.index_select.default, f32(3, 4), 1, at(2), emits=["Gather"]),
        Case(aten.index_select.default, f32(3, 4), -2, at(), emits=["Unsqueeze", "Gather"]),
        Case(aten.index_select.default, f32(), 0, i64(1, low=0, high=0), emits=["Identity"]),
        Case(aten.gather.default, f32(3, 4), 1, at(3, 2), emits=["GatherElements"]),
        Case(aten.gather.default, f32(3, 4), 0, at(1, 2), dynamic=False, emits=["GatherElements"]),
        Case(aten.gather.default, f32(), 0, i64(low=0, high=0)),
        Case(aten.gather.default, f32(3), 0, at()),
        Case(aten.take.default, f32(3, 4), at(2, 2, low=-12, high=11), dynamic=False),
        Case(aten.take.default, f32(), i64(2, low=0, high=0)),
        Case(aten.take_along_dim.default, f32(3, 4), at(3, 2), 1),
        Case(aten.take_along_dim.default, f32(3, 4), at(1, 2), 1),
        Case(aten.take_along_dim.default, f32(1, 4), at(3, 2), -1),
        Case(aten.take_along_dim.default, f32(3, 4), at(5)),
    ]
)
def test_along_an_axis(case: Case) -> None:
    check(case)


class FirstRow(torch.nn.Module):
    """Reads and writes at the first of some rows, in a column of the model."""

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the element, and x with 3 there."""
        first, column = rows[:1], torch.tensor([1])
        return x[first, column], x.index_put((first, column), torch.tensor(3.0))


@pytest.mark.parametrize("opset", [13, 18, 23])
def test_an_empty_slice_beside_another_index_is_an_error(opset: int) -> None:
    """The model says that it has one row, and ONNX Runtime's Concat would read memory that nothing has written."""
    x, rows, module = torch.rand(4, 3), torch.tensor([2, 1]), FirstRow().eval()
    shapes = ({}, {0: Dim.AUTO})
    program = fx_onnx.export(module, (x, rows), dynamic_shapes=shapes, opset_version=opset, verbose=False)
    for given in (rows, rows[:1]):
        assert_close(program(x, given), module(x, given))
    with pytest.raises(fx_onnx.OnnxExporterError, match="cannot be reshaped"):
        program(x, rows[:0])


def test_the_helper_makes_arguments() -> None:
    assert arg(torch.int64)(2).shape == (2,)
