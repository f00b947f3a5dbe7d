"""Decompositions of upsampling against torch."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch

aten = torch.ops.aten
SIZE, OUTS = (7, 8, 9), [(14, 8, 5), (1, 3, 20), (11, 15, 4)]
FACTORS = [(2.0, 1.0, 0.5), (1.7, 0.29, 3.3)]
TOLERANCES = {torch.float32: 2e-6, torch.float64: 1e-12}
INTERPOLATION = [
    (aten.upsample_linear1d, 1),
    (aten.upsample_bilinear2d, 2),
    (aten.upsample_trilinear3d, 3),
    (aten.upsample_bicubic2d, 2),
    (aten._upsample_bilinear2d_aa, 2),
    (aten._upsample_bicubic2d_aa, 2),
]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["upsample_nearest", "_upsample_nearest_exact"])
def test_nearest(kind: str, axes: int) -> None:
    target, x = getattr(aten, f"{kind}{axes}d"), torch.randn(2, 3, *SIZE[:axes])
    for outs in OUTS:
        assert_matches_torch(target.default, x, list(outs[:axes]), tolerance=0.0)
    for factors in FACTORS:
        assert_matches_torch(target.vec, x, None, list(factors[:axes]), tolerance=0.0)


@pytest.mark.parametrize("size", range(1, 60, 7))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8])
def test_nearest_rounds_as_torch(size: int, dtype: torch.dtype) -> None:
    x = torch.arange(size).to(dtype).reshape(1, 1, size)
    for out in range(1, 400, 3):
        assert_matches_torch(aten.upsample_nearest1d.default, x, [out], tolerance=0.0)


@pytest.mark.parametrize(("target", "axes"), INTERPOLATION, ids=str)
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_interpolation(target: torch._ops.OpOverloadPacket, axes: int, corners: bool, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, *SIZE[:axes], dtype=dtype)
    for outs in OUTS:
        assert_matches_torch(target.default, x, list(outs[:axes]), corners, tolerance=TOLERANCES[dtype])
    for factors in FACTORS:
        assert_matches_torch(target.vec, x, None, corners, list(factors[:axes]), tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("channels", [1, 3, 6])
@pytest.mark.parametrize(("target", "axes"), [each for each in INTERPOLATION if each[1] == 2], ids=str)
def test_uint8(target: torch._ops.OpOverloadPacket, axes: int, channels: int) -> None:
    x = torch.randint(0, 256, (2, channels, 9, 8), dtype=torch.uint8)
    for outs in ([12, 5], [20, 17], [9, 5], [4, 8], [9, 16]):
        assert_matches_torch(target.default, x, outs, False, tolerance=0.0)
