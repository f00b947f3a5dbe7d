"""Shapes, axis order, broadcasting, copies and dtype conversions."""

import torch

from tests.harness import Case, b8, cases, check, f16, f32, f64, i32, i64, u8

aten = torch.ops.aten


def last_as_rows(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1])


def split_heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)


def as_other(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.reshape(y.shape) + y


@cases(
    [
        Case(aten.view.default, f32(2, 6), [3, 4], dynamic=False, emits=["Reshape"]),
        Case(aten.view.default, f32(2, 6), [2, 6], dynamic=False, emits=["Identity"]),
        Case(aten.reshape.default, f32(2, 3, 4), [-1], emits=["Reshape"]),
        Case(aten.reshape.default, f32(), [1], emits=["Reshape"]),
        Case(aten.reshape.default, f32(1), [], emits=["Reshape"]),
        Case(aten.reshape.default, f32(0, 3), [3, 0], emits=["Reshape"]),
        Case(aten.reshape.default, b8(4, 3), [3, 4], dynamic=False),
        Case(last_as_rows, f32(2, 3, 4), emits=["Reshape"]),
        Case(split_heads, f16(2, 3, 8)),
        Case(as_other, f32(6), f32(2, 3)),
        Case(aten.view_as.default, f32(6), i64(2, 3)),
        Case(aten.reshape_as.default, f32(3, 2), f32(2, 3)),
        Case(aten.flatten.using_ints, f32(2, 3, 4), emits=["Reshape"]),
        Case(aten.flatten.using_ints, f32(2, 3, 4), 1, emits=["Reshape"]),
        Case(aten.flatten.using_ints, f32(2, 3, 4), 0, -2, emits=["Reshape"]),
        Case(aten.flatten.using_ints, f32(), emits=["Reshape"]),
        Case(aten.unflatten.int, f32(2, 12), 1, [3, 4], dynamic=False, emits=["Reshape"]),
        Case(aten.unflatten.int, f32(12, 2), 0, [4, -1], dynamic=False),
        Case(aten.ravel.default, f32(2, 3), emits=["Reshape"]),
        Case(aten.atleast_1d.default, f32(), emits=["Reshape"]),
        Case(aten.atleast_2d.default, f32(3), emits=["Reshape"]),
        Case(aten.atleast_3d.default, f32(3, 2), emits=["Reshape"]),
        Case(aten.unsqueeze.default, f32(2, 3), 1, emits=["Unsqueeze"]),
        Case(aten.unsqueeze.default, f32(2, 3), -1, emits=["Unsqueeze"]),
        Case(aten.unsqueeze.default, i32(), 0, emits=["Unsqueeze"]),
        Case(aten.squeeze.default, f32(1, 3, 1), emits=["Squeeze"]),
        Case(aten.squeeze.default, f32(), emits=["Identity"]),
        Case(aten.squeeze.dim, f32(1, 3), 0, emits=["Squeeze"]),
        Case(aten.squeeze.dim, f32(1, 3), 1, emits=["Identity"]),
        Case(aten.squeeze.dim, f32(), -1, emits=["Identity"]),
        Case(aten.squeeze.dims, f32(1, 3, 1, 1), [0, -1], emits=["Squeeze"]),
    ]
)
def test_sizes(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.permute.default, f32(2, 3, 4), [2, 0, 1], emits=["Transpose"]),
        Case(aten.permute.default, f32(2, 3, 4), [0, -2, -1], emits=["Identity"]),
        Case(aten.permute.default, f32(), []),
        Case(aten.transpose.int, b8(2, 3, 4), 1, -1, emits=["Transpose"]),
        Case(aten.transpose.int, f32(), 0, -1, emits=["Identity"]),
        Case(aten.t.default, f32(2, 3), emits=["Transpose"]),
        Case(aten.t.default, f32(3), emits=["Identity"]),
        Case(aten.mT.default, f32(2, 3, 4), emits=["Transpose"]),
        Case(aten.mH.default, f32(2, 3, 4)),
        Case(aten.adjoint.default, f32(3, 4)),
        Case(aten.numpy_T.default, f32(2, 3, 4)),
        Case(aten.swapaxes.default, f32(2, 3, 4), 0, -1),
        Case(aten.swapdims.default, f32(2, 3, 4), 0, 1),
        Case(aten.movedim.int, f32(2, 3, 4), 0, -1, emits=["Transpose"]),
        Case(aten.movedim.intlist, f32(2, 3, 4, 5), [0, -1], [2, 0], emits=["Transpose"]),
        Case(aten.moveaxis.int, f32(), 0, 0),
    ]
)
def test_axis_order(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.expand.default, f32(1, 3), [4, 3], emits=["Expand"]),
        Case(aten.expand.default, f32(1, 3), [4, -1], emits=["Expand"]),
        Case(aten.expand.default, f32(3), [2, 3], emits=["Expand"]),
        Case(aten.expand.default, f32(2, 3), [-1, -1], emits=["Identity"]),
        Case(aten.expand.default, f32(1, 3), [0, 3], dynamic=False),
        Case(aten.expand.default, b8(), [2]),
        Case(aten.broadcast_to.default, f32(3), [2, 3], dynamic=False, emits=["Expand"]),
        Case(aten.expand_as.default, f32(3), f32(2, 3), emits=["Expand"]),
        Case(aten.expand_as.default, f32(2, 1), f32(2, 3), emits=["Expand"]),
    ]
)
def test_broadcasts(case: Case) -> None:
    check(case)


@cases(
    [
        Case(target, f32(2, 3), emits=["Identity"])
        for target in (
            aten.clone.default, aten.alias.default, aten.detach.default, aten.contiguous.default, aten.positive.default,
            aten.resolve_conj.default, aten.resolve_neg.default, aten.lift_fresh.default,
        )
    ]
)  # fmt: skip
def test_copies(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.to.dtype, f32(2, 3), torch.float16, emits=["Cast"]),
        Case(aten.to.dtype, f32(2, 3), torch.float32, emits=["Identity"]),
        Case(aten.to.dtype, f32(4, values=(0.0, -0.0, 0.5, float("nan"))), torch.bool, emits=["Cast"]),
        Case(aten.to.dtype, f32(4, values=(-1.7, 1.7, 2.5, -0.2)), torch.int64),
        Case(aten.to.dtype, i64(3), torch.uint8, dynamic=False),
        Case(aten.to.dtype, b8(3), torch.float64),
        Case(aten.to.dtype, f64(3), torch.bfloat16),
        Case(aten.to.dtype_layout, f32(2), dtype=torch.int32, emits=["Cast"]),
        Case(aten.to.device, f32(2), torch.device("cpu"), torch.float64, emits=["Cast"]),
        Case(aten.to.other, f32(2), i64(3), emits=["Cast"]),
        Case(aten.type_as.default, u8(2), f32(3), emits=["Cast"]),
        Case(aten._to_copy.default, f32(2), dtype=torch.int32, emits=["Cast"]),
    ]
)
def test_dtypes(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.view.dtype, f32(2, 3), torch.int32, opsets=[26], emits=["BitCast"]),
        Case(aten.view.dtype, i64(2, 3), torch.float64, opsets=[26], emits=["BitCast"]),
        Case(aten.view.dtype, b8(2, 3), torch.uint8, opsets=[18, 26], emits=["Cast"]),
        Case(aten.view.dtype, u8(2, 3), torch.bool, opsets=[18, 26], emits=["Cast"]),
        Case(aten.view.dtype, i64(2, 3), torch.uint64, opsets=[18], emits=["Cast"]),
        Case(aten.view.dtype, i32(2, 3), torch.uint32, opsets=[18], emits=["Cast"]),
        Case(aten.view.dtype, u8(2, 3), torch.int8, opsets=[18], emits=["Cast"]),
        Case(aten.view.dtype, f32(2, 3), torch.float32, opsets=[18], emits=["Identity"]),
    ]
)
def test_bits(case: Case) -> None:
    check(case)
