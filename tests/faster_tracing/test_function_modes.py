"""The modes of torch.export that see each call of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._export.non_strict_utils import _NonStrictTorchFunctionHandler

from fx_onnx.faster_tracing.function_modes import REPLACEMENTS
from fx_onnx.faster_tracing.replacement import replaced
from tests.torch_versions import needs

X = torch.arange(6.0).reshape(2, 3)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "function": (torch.add, (X, X), {"alpha": 2}),
    "operator": (torch.ops.aten.sin.default, (X,), {}),
    "property": (torch.Tensor.shape.__get__, (X,), {}),
    "item": (torch.Tensor.__getitem__, (X, (torch.tensor(1), slice(0, 2))), {}),
    "numbers": (torch.Tensor.__getitem__, (X, 1), {}),
    "tensor": (torch.tensor, ([1, 2],), {}),
    "assertion": (torch._assert, (True, "never"), {}),
    "of_the_user": (lambda x: x, (X,), {}),
}


@pytest.mark.parametrize("name", [*sorted(CALLS.keys() - {"item"}), pytest.param("item", marks=needs("known sources"))])
def test_calls_are_changed_as_by_torch(name: str) -> None:
    handler = _NonStrictTorchFunctionHandler()

    def changed() -> Any:
        func, args, kwargs = handler._override(*CALLS[name])
        return func is CALLS[name][0], repr(func(*args, **kwargs))

    expected = changed()
    with replaced(REPLACEMENTS):
        assert changed() == expected
    assert expected[0] == (name != "item")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_collectives_are_functional() -> None:
    call = torch.distributed.all_gather_into_tensor, (X, X), {}
    expected = _NonStrictTorchFunctionHandler()._override(*call)
    with replaced(REPLACEMENTS):
        func, args, kwargs = _NonStrictTorchFunctionHandler()._override(*call)
    assert func is expected[0] is not call[0] and (args, kwargs.keys()) == ((), expected[2].keys())
