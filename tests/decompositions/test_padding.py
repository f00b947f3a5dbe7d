"""Decompositions of paddings against torch."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch

aten = torch.ops.aten


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("pad", [[1, 2], [0, 0], [-1, 2], [2, -3], [-1, -2], [1, 2, 0, 3], [-1, 3, 2, -2]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pad(mode: str, pad: list[int], dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 5, 6) if len(pad) == 4 else torch.randn(2, 3, 6)
    assert_matches_torch(aten.pad.default, x.to(dtype), pad, mode, tolerance=0.0)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_operators_of_each_rank(rank: int) -> None:
    x = torch.randn(2, 3, *range(4, 4 + rank))
    pad = [2, 1, 0, 3, 1, 1][: 2 * rank]
    for kind in ("reflection", "replication"):
        assert_matches_torch(getattr(aten, f"{kind}_pad{rank}d").default, x, pad, tolerance=0.0)
        assert_matches_torch(getattr(aten, f"{kind}_pad{rank}d").default, x[0], pad, tolerance=0.0)


def test_modes_by_number() -> None:
    for mode in range(4):
        assert_matches_torch(aten._pad_enum.default, torch.randn(2, 3, 6), [1, 2], mode, tolerance=0.0)
    assert_matches_torch(aten._pad_circular.default, torch.randn(2, 3, 6), [1, 2], tolerance=0.0)


@pytest.mark.parametrize("options", [(), (True, 2.0), (True, -1.0, "left"), (False, 0.0, "left")])
def test_sequences(options: tuple[object, ...]) -> None:
    assert_matches_torch(
        aten.pad_sequence.default, [torch.randn(3, 2), torch.randn(5, 2), torch.randn(1, 2)], *options, tolerance=0.0
    )
    assert_matches_torch(aten.pad_sequence.default, [torch.arange(3)], *options, tolerance=0.0)
