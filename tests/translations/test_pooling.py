"""Max, average and adaptive pooling."""

import torch
from torch import nn

import fx_onnx
from tests.harness import Case, cases, check, f32, f64, i64, u8

aten = torch.ops.aten


@cases(
    [
        Case(aten.max_pool1d.default, f32(2, 3, 9), [2], emits=["MaxPool"]),
        Case(aten.max_pool1d.default, f32(3, 9), [3], [2], [1]),
        Case(aten.max_pool2d.default, f32(2, 3, 9, 8), [3, 2], emits=["MaxPool"]),
        Case(aten.max_pool2d.default, f32(2, 3, 9, 8), [3, 3], [2, 2], [1, 1], emits=["MaxPool"]),
        Case(aten.max_pool2d.default, f32(3, 9, 8), [2]),
        Case(aten.max_pool2d.default, f32(2, 3, 9, 8), [3, 3], [2, 2], [1, 1], [2, 1], True, emits=["MaxPool"]),
        Case(aten.max_pool2d.default, f32(2, 3, 10, 6), [2, 2], [4, 4], [1, 1], [1, 1], True),
        Case(aten.max_pool1d.default, f32(2, 3, 8), [2], [2], [1], [3], True),
        Case(aten.max_pool2d.default, f64(2, 3, 6, 6), [2, 2]),
        Case(aten.max_pool2d.default, u8(2, 3, 6, 6), [2, 2], emits=["MaxPool"]),
        Case(aten.max_pool2d.default, i64(2, 3, 6, 6), [2, 2], emits=["Cast", "MaxPool", "Cast"]),
        Case(aten.max_pool3d.default, f32(2, 3, 5, 6, 7), [2, 2, 3], [1, 2, 2], [1, 0, 1], [1, 1, 1], True),
        Case(aten.max_pool1d_with_indices.default, f32(2, 3, 9), [2], emits=["MaxPool", "Mod"]),
        Case(aten.max_pool2d_with_indices.default, f32(2, 3, 9, 8), [3, 2], [2, 2], [1, 1]),
        Case(aten.max_pool2d_with_indices.default, f32(3, 9, 8), [3, 2], [2, 2], [1, 1], [1, 1], True),
        Case(aten.max_pool2d_with_indices.default, f32(1, 1, 9, 8), [3, 2], emits=["MaxPool"], dynamic=False),
        Case(aten.max_pool2d_with_indices.default, f32(2, 3, 8, 9), [2, 3], [2, 2], [1, 1], [3, 2], True),
        Case(aten.max_pool3d_with_indices.default, f32(2, 3, 5, 6, 7), [2, 2, 3]),
        Case(
            aten.max_pool3d_with_indices.default, f32(2, 3, 6, 6, 6), [3, 2, 3], [2, 2, 2], [1, 1, 1], [1, 2, 1], True
        ),
        Case(aten.max_pool1d.default, f32(2, 3, 2), [2], [1], [1], [3], True),
        Case(aten.max_pool2d.default, f32(2, 3, 9, 2), [2, 2], [3, 3], [1, 1], [3, 4], True),
        Case(aten.max_pool2d.default, i64(3, 2, 2), [2, 2], [3, 1], [1, 1], [2, 3], True, dynamic=False),
        Case(aten.max_pool3d.default, f32(2, 1, 2, 2, 6), [2, 2, 3], [1, 1, 2], [1, 1, 1], [3, 3, 2], dynamic=False),
    ]
)
def test_max_pool(case: Case) -> None:
    check(case)


def test_the_maximum_of_a_window_without_elements() -> None:
    """A window wholly in the padding has the maximum minus infinity beside indices too; its own index is any."""
    pool = nn.MaxPool2d(2, stride=3, padding=1, dilation=3, ceil_mode=True, return_indices=True)
    program = fx_onnx.export(
        pool, (torch.randn(2, 3, 2, 4),), dynamic_shapes=({2: "height", 3: "width"},), verbose=False
    )
    for height, width in [(2, 4), (4, 2), (5, 7)]:
        x = torch.randn(2, 3, height, width)
        want, places = pool(x)
        got, indices = program(x)
        assert got.equal(want)
        assert (want == -torch.inf).any() == (min(height, width) == 2)
        assert indices[want.isfinite()].equal(places[want.isfinite()])


@cases(
    [
        Case(aten.avg_pool1d.default, f32(2, 3, 9), [2], emits=["AveragePool"]),
        Case(aten.avg_pool1d.default, f32(3, 9), [3], [2], [1]),
        Case(aten.avg_pool2d.default, f32(2, 3, 9, 8), [3, 2], emits=["AveragePool"]),
        Case(aten.avg_pool2d.default, f32(2, 3, 9, 8), [3, 2], [2, 2], [1, 1], emits=["AveragePool"]),
        Case(aten.avg_pool2d.default, f32(2, 3, 9, 8), [3, 2], [2, 2], [1, 1], False, False, emits=["AveragePool"]),
        Case(aten.avg_pool2d.default, f32(2, 3, 9, 8), [3, 2], [2, 3], [0, 0], True, emits=["AveragePool"]),
        Case(aten.avg_pool2d.default, f32(2, 3, 9, 8), [3, 3], [2, 2], [1, 1], True, False, emits=["AveragePool"]),
        Case(aten.avg_pool2d.default, f32(2, 3, 8, 8), [3, 3], [2, 2], [1, 1], True, emits=["Pad", "AveragePool"]),
        Case(aten.avg_pool2d.default, f32(2, 3, 10, 9), [2, 2], [4, 4], [1, 1], True, True),
        Case(aten.avg_pool2d.default, f32(3, 8, 8), [3, 3], [2, 2], [1, 1], True, True, 5),
        Case(aten.avg_pool2d.default, f32(2, 3, 8, 8), [3, 3], [2, 2], [1, 1], False, False, 5),
        Case(aten.avg_pool3d.default, f32(2, 3, 5, 6, 7), [2, 2, 3], [1, 2, 2], [1, 0, 1], True),
        Case(aten.avg_pool3d.default, f32(3, 5, 6, 7), [2, 2, 3], [], [0, 0, 0], True, False, 7),
    ]
)
def test_avg_pool(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.adaptive_avg_pool1d.default, f32(2, 3, 9), [1], emits=["GlobalAveragePool"]),
        Case(aten.adaptive_avg_pool2d.default, f32(2, 3, 9, 8), [1, 1], emits=["GlobalAveragePool"]),
        Case(aten.adaptive_avg_pool2d.default, f32(3, 9, 8), [1, 1], emits=["ReduceMean"]),
        Case(aten.adaptive_avg_pool2d.default, f32(2, 3, 9, 8), [3, 4], emits=["AveragePool"]),
        Case(aten.adaptive_avg_pool2d.default, f32(2, 3, 9, 8), [4, 3]),
        Case(aten.adaptive_avg_pool2d.default, f32(2, 3, 9, 8), [1, 3]),
        Case(aten.adaptive_avg_pool2d.default, f32(3, 9, 8), [12, 3]),
        Case(aten.adaptive_avg_pool2d.default, f64(2, 3, 9, 8), [2, 3]),
        Case(aten.adaptive_avg_pool3d.default, f32(2, 3, 4, 6, 8), [2, 3, 4], emits=["AveragePool"]),
        Case(aten.adaptive_avg_pool3d.default, f32(2, 3, 5, 6, 7), [3, 4, 2]),
        Case(aten._adaptive_avg_pool2d.default, f32(2, 3, 9, 8), [1, 1], emits=["GlobalAveragePool"]),
        Case(torch.nn.functional.adaptive_avg_pool2d, f32(2, 3, 9, 8), (None, 2)),
    ]
)
def test_adaptive_avg_pool(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.adaptive_max_pool1d.default, f32(2, 3, 9), [3], emits=["MaxPool", "Mod"]),
        Case(aten.adaptive_max_pool2d.default, f32(2, 3, 9, 8), [1, 1]),
        Case(aten.adaptive_max_pool2d.default, f32(2, 3, 9, 8), [4, 3]),
        Case(aten.adaptive_max_pool2d.default, f32(3, 9, 8), [4, 3]),
        Case(aten.adaptive_max_pool3d.default, f32(2, 3, 5, 6, 7), [2, 3, 4]),
    ]
)
def test_adaptive_max_pool(case: Case) -> None:
    check(case)


@cases(
    [
        Case(
            aten.max_unpool2d.default, f32(1, 2, 2, 2), i64(1, 2, 2, 2, values=(0, 3, 9, 15)), [4, 4], dynamic=False
        ),
        Case(
            aten.fractional_max_pool2d.default, f32(2, 3, 9, 8), [2, 3], [4, 5], f32(2, 3, 2, low=0, high=1),
            dynamic=False,
        ),
        Case(
            aten.fractional_max_pool3d.default, f32(2, 3, 9, 8, 7), [2, 3, 2], [4, 5, 3], f32(2, 3, 3, low=0, high=1),
            dynamic=False,
        ),
        Case(torch.nn.functional.lp_pool2d, f32(2, 3, 9, 8, low=0.1), 2, 3),
    ]
)  # fmt: skip
def test_unpooling_and_other_pooling(case: Case) -> None:
    check(case)
