"""Each row of the table of differences is used, and about a version in the window."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_differences import (
    DIFFERENCES,
    has,
    newer_than,
    older_fake_kernels,
    older_kernels,
    older_than,
    shape_kernel,
)
from fx_onnx.torch_internals.torch_private import kernel_keys
from fx_onnx.torch_internals.version import NEWEST_TORCH, OLDEST_TORCH
from tests.sources import sources


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_row_is_about_a_supported_version(name: str) -> None:
    assert _numbers(OLDEST_TORCH) < _numbers(DIFFERENCES[name].until) <= _numbers(NEWEST_TORCH)


def test_every_row_is_used_and_every_use_has_a_row() -> None:
    uses = {
        use for source in sources() for use in re.findall(r'\b(?:has|newer_than|older_than)\("([^"]+)"\)', source.text)
    }
    assert uses == DIFFERENCES.keys()


def test_nothing_else_compares_the_version_of_torch() -> None:
    """The check of the version, and the table itself, are the only readers."""
    readers = {
        source.name for source in sources() if re.search(r"torch\.__version__ *[<>=]|TorchVersion\(torch", source.text)
    }
    assert readers == {"fx_onnx/torch_internals/torch_differences.py"}


@pytest.mark.parametrize(("installed", "expected"), [("2.12.1+cu130", True), ("2.13.0", False), ("2.15.0a0", False)])
def test_versions_before_a_row_have_the_difference(
    installed: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", installed)
    has.cache_clear()
    assert has("no compile session") == expected
    has.cache_clear()
    assert (newer_than("no compile session"), older_than("no compile session")) == ("torch>=2.13", "torch<2.13")


# ---------------------------------------------------------------- kernels for tensors without values

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
    assert older_kernels() == older_fake_kernels() == {}
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


@pytest.mark.parametrize("installed", ["2.12.1"], indirect=True)
@pytest.mark.parametrize(
    ("weights", "dtype"),
    [(None, torch.int64), (torch.float32, torch.float32), (torch.float64, torch.float64), (torch.bool, torch.float64)],
)
def test_counts_have_the_dtype_of_sums(installed: None, weights: torch.dtype | None, dtype: torch.dtype) -> None:
    counts = torch.empty(4, dtype=torch.int32, device="meta")  # as torch 2.12 returns them
    bincount = older_fake_kernels()[aten.bincount.default](lambda *_: counts)
    given = [] if weights is None else [torch.empty(3, dtype=weights, device="meta")]
    assert bincount(None, aten.bincount.default, counts, *given).dtype == dtype


@pytest.mark.parametrize("installed", ["2.12.1"], indirect=True)
@pytest.mark.parametrize(("index", "is_inside"), [(0, True), (3, True), (-4, True), (4, False), (-5, False)])
def test_an_index_beyond_the_end_is_refused(installed: None, index: int, is_inside: bool) -> None:
    select = older_fake_kernels()[aten.select.int](lambda mode, operator, *args: operator(*args))
    x = torch.empty(4, 2, device="meta")
    if is_inside:
        assert select(None, aten.select.int, x, 0, index).shape == (2,)
    else:
        with pytest.raises(IndexError, match="out of range"):
            select(None, aten.select.int, x, 0, index)


@pytest.mark.parametrize("installed", ["2.11.0"], indirect=True)
@pytest.mark.parametrize(
    ("size", "start", "end", "step"),
    [(9, 2, 7, 1), (9, 2, 7, 2), (9, 7, 2, 1), (4, 1, 4, 2), (5, 5, 0, 3), (9, 2, sys.maxsize, 2)],
)
def test_a_slice_whose_bounds_have_no_known_order_has_the_size_of_its_bounds(
    installed: None, size: int, start: int, end: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch._subclasses.fake_impls._compute_slice_index", lambda size, index: index)
    environment = ShapeEnv()
    numbers = [environment.create_unbacked_symint() for _ in range(3)]
    for number in numbers:
        torch._check(number >= 0)
    with FakeTensorMode(shape_env=environment):
        x = torch.empty(numbers[0] + 1, 2)
        first, last = numbers[1], end if end == sys.maxsize else numbers[2]
        piece = older_fake_kernels()[aten.slice.Tensor](_not_called)(None, aten.slice.Tensor, x, 0, first, last, step)
    values = dict(zip((number.node.expr for number in numbers), (size - 1, start, end), strict=True))
    found = (piece.shape[0], piece.storage_offset(), piece.stride()[0])
    expected = torch.empty(size, 2)[start:end:step]
    assert [number.node.expr.subs(values) if isinstance(number, torch.SymInt) else number for number in found] == [
        expected.shape[0], expected.storage_offset(), expected.stride()[0],
    ]  # fmt: skip


def _not_called(*_: object) -> None:
    raise AssertionError("torch makes a new symbol for the size")


@pytest.mark.parametrize("installed", ["2.11.0"], indirect=True)
def test_other_slices_are_those_of_torch(installed: None) -> None:
    kernel = older_fake_kernels()[aten.slice.Tensor](lambda mode, operator, *args: operator(*args))
    x = torch.empty(4, 2, device="meta")
    assert kernel(None, aten.slice.Tensor, x, end=3, step=2).shape == (2, 2)
    for arguments in ((), (0,), (0, 1), (0, None, 3), (1, 0, -1), (0, 3, 1), (0, 1, 2**63 - 1, 2)):
        assert kernel(None, aten.slice.Tensor, x, *arguments).shape == aten.slice.Tensor(x, *arguments).shape


@pytest.mark.parametrize("installed", ["2.11.0"], indirect=True)
@pytest.mark.parametrize("operator", [aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default])
def test_positions_and_counts_are_integers(installed: None, operator: torch._ops.OpOverload) -> None:
    x = torch.empty(3, device="meta")
    results = older_fake_kernels()[operator](lambda *_: (x, x, x[:2]))(None, operator, x)
    assert [(tuple(each.shape), each.dtype) for each in results] == [
        ((3,), torch.float32), ((3,), torch.int64), ((2,), torch.int64),
    ]  # fmt: skip
