"""A decomposition is compared with the operator it replaces, in torch alone."""

from typing import Any

import torch

from fx_onnx.decompositions import DECOMPOSITIONS


def assert_same(target: Any, *args: Any) -> None:
    """Raises AssertionError where the decomposition of ``target`` gives other values, shapes or dtypes."""
    torch.testing.assert_close(DECOMPOSITIONS[target](*args), target(*args), equal_nan=True)
