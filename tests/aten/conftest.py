"""Fixtures of the tests of decomposition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fx_onnx.aten import decompose
from fx_onnx.aten.decompose import find_decomposition


@pytest.fixture
def no_own_decompositions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hides the package's own decompositions, so that only PyTorch's and those of the test apply."""
    monkeypatch.setattr(decompose, "DECOMPOSITIONS", {})
    find_decomposition.cache_clear()
    yield
    find_decomposition.cache_clear()
