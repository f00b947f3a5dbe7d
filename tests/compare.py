"""Compares the outputs of ONNX Runtime with those of PyTorch."""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_TOLERANCES = {torch.float64: 1e-7, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def assert_close(got: Any, want: Any, tolerance: float | None = None) -> None:
    """Compares every tensor of ``got`` with that of ``want``; both may be nested in tuples, lists and dicts.

    Shapes and dtypes must be equal, and so must integers and booleans. Floats may differ by ``tolerance`` (by default
    that of their dtype) times the largest finite magnitude in ``want``, or times 1 if that is smaller. NaN equals
    NaN, and an infinity equals itself. Complex numbers are compared as pairs of real ones.

    Raises:
        AssertionError: names the output, and its shape, dtype or largest difference.
    """
    got, want = _tensors(got), _tensors(want)
    assert len(got) == len(want), f"{len(got)} outputs instead of {len(want)}"
    for index, (one, other) in enumerate(zip(got, want, strict=True)):
        _assert_one_close(f"output {index}", one, other, tolerance)


def _tensors(values: Any) -> list[Tensor]:
    return [leaf.detach().resolve_conj() for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def _assert_one_close(name: str, got: Tensor, want: Tensor, tolerance: float | None) -> None:
    assert got.shape == want.shape, f"{name}: shape {tuple(got.shape)} instead of {tuple(want.shape)}"
    assert got.dtype == want.dtype, f"{name}: dtype {got.dtype} instead of {want.dtype}"
    dtype = _PARTS.get(want.dtype, want.dtype)
    if not dtype.is_floating_point:
        unequal = int((got != want).sum())
        assert unequal == 0, f"{name}: {unequal} of {want.numel()} values differ ({dtype}, {tuple(want.shape)})"
        return
    if want.is_complex():
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    got, want = got.double(), want.double()
    finite = want.isfinite()
    same = (got == want) | (got.isnan() & want.isnan())
    unequal = int((~same & ~(finite & got.isfinite())).sum())
    assert unequal == 0, f"{name}: {unequal} of {want.numel()} infinities or NaNs differ ({dtype})"
    allowed = (_TOLERANCES.get(dtype, 1e-1) if tolerance is None else tolerance) * _largest(want[finite], floor=1.0)
    difference = _largest((got - want)[finite])
    assert difference <= allowed, (
        f"{name}: differs by {difference:.3g}, allowed {allowed:.3g} ({dtype}, {tuple(want.shape)})"
    )


def _largest(values: Tensor, floor: float = 0.0) -> float:
    return max(floor, float(values.abs().max())) if values.numel() else floor


def assert_as_accurate(got: Any, eager: Any, exact: Any) -> None:
    """Compares low-precision results with exact ones; the errors of eager set the allowed error.

    ``exact`` holds float64 results, and ``eager`` those of eager mode in the precision of ``got``. The error of a float
    may be twice the largest error of eager, plus one rounding of the largest value.

    Raises:
        AssertionError: names the output, and its shape, dtype or largest error.
    """
    outputs = zip(_tensors(got), _tensors(eager), _tensors(exact), strict=True)
    for index, (one, other, truth) in enumerate(outputs):
        assert one.shape == other.shape, f"output {index}: shape {tuple(one.shape)} instead of {tuple(other.shape)}"
        assert one.dtype == other.dtype, f"output {index}: dtype {one.dtype} instead of {other.dtype}"
        error, allowed = (_largest(each.double() - truth.double()) for each in (one, other))
        rounding = torch.finfo(one.dtype).eps * _largest(truth) if one.is_floating_point() else 0.0
        assert error <= 2 * allowed + rounding, f"output {index}: the error is {error:.3g}, that of eager {allowed:.3g}"
