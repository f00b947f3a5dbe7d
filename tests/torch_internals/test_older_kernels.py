"""Older versions of torch get the kernels for tensors without values that newer ones have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fx_onnx.torch_internals.older_kernels import older_kernels, shape_kernel
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_differences import has
from fx_onnx.torch_internals.torch_private import kernel_keys

CONVOLUTION, (_, META) = aten.convolution.default, kernel_keys()


@pytest.fixture
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets another torch be installed, by its version."""
    monkeypatch.setattr(torch, "__version__", request.param)
    for cached in (has, older_kernels):
        cached.cache_clear()
    yield
    for cached in (has, older_kernels):
        cached.cache_clear()


def _arguments(size: int, padding: list[int], dilation: list[int], transposed: bool) -> list[object]:
    x, weight = torch.empty(2, 3, size, size, device="meta"), torch.empty(3, 3, 3, 3, device="meta")
    return [x, weight, None, [1, 1], padding, dilation, transposed, [0, 0], 1]


@pytest.mark.parametrize("installed", ["2.13.0", "2.15.1"], indirect=True)
def test_a_newer_torch_needs_no_kernel(installed: None) -> None:
    assert older_kernels() == {}
    assert shape_kernel(CONVOLUTION) is CONVOLUTION


@pytest.mark.parametrize("installed", ["2.12.1"], indirect=True)
@pytest.mark.parametrize(
    ("size", "padding", "dilation", "transposed", "result"),
    [
        (3, [0, 0], [1, 1], False, 1),
        (2, [0, 0], [1, 1], False, None),
        (2, [1], [1], False, 2),
        (3, [1], [2], False, 1),
        (2, [1], [2], False, None),
        (3, [0, 1], [2, 1], False, None),
        (2, [0, 0], [1, 1], True, 4),
    ],
)
def test_a_convolution_checks_that_its_kernel_fits(
    installed: None, size: int, padding: list[int], dilation: list[int], transposed: bool, result: int | None
) -> None:
    kernel, arguments = older_kernels()[CONVOLUTION, META], _arguments(size, padding, dilation, transposed)
    assert shape_kernel(CONVOLUTION) is kernel
    if result is None:
        with pytest.raises(RuntimeError, match="larger than the padded input"):
            kernel(*arguments)
    else:
        assert kernel(*arguments).shape == (2, 3, result, result)


@pytest.mark.parametrize("installed", ["2.12.1"], indirect=True)
def test_the_flags_of_a_convolution_change_no_shape(installed: None) -> None:
    kernel = older_kernels()[aten._convolution.default, META]
    arguments = _arguments(5, [1, 1], [1, 1], False)
    assert kernel(*arguments, False, False, True, True).shape == CONVOLUTION(*arguments).shape


@pytest.mark.parametrize("installed", ["2.12.1"], indirect=True)
def test_gamma_has_the_shape_of_its_argument(installed: None) -> None:
    x = torch.empty(2, 3, device="meta")
    assert shape_kernel(aten._standard_gamma.default)(x).shape == x.shape
