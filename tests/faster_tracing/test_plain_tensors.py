"""Fake tensors whose sizes are numbers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch._subclasses import fake_tensor
from torch._subclasses._fake_tensor_utils import _CacheKeyState
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor

from fx_onnx.faster_tracing.plain_tensors import REPLACEMENTS
from fx_onnx.faster_tracing.replacement import replaced

MODE = FakeTensorMode()


def _tensors() -> list[Any]:
    with MODE:
        plain = [torch.empty(shape) for n in range(4) for shape in product((0, 1, 3), repeat=n)]
        last = [torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.empty(2, 3, 4, 5, 6).movedim(1, 4)]
        strided = [torch.empty(4, 6)[1:, ::2].T, torch.empty(3, 1).expand(3, 4), torch.empty(1, 1, 2, 2)[:, :, 1:]]
        kinds = [torch.empty(2, dtype=dtype) for dtype in (torch.bool, torch.int8, torch.bfloat16, torch.complex64)]
        bits = [kinds[-1].conj(), kinds[-1].conj().imag, torch.empty(2, requires_grad=True), torch.empty(2).to_sparse()]
        with torch.inference_mode():
            bits.append(torch.empty(2))
        return [*plain, *last, *strided, *kinds, *bits]


TENSORS = _tensors()


def _facts(tensor: FakeTensor) -> Any:
    keys = str(torch._C._dispatch_key_set(tensor))
    layout = (tensor.stride(), tensor.storage_offset()) if tensor.layout == torch.strided else tensor.layout
    return type(tensor), tensor.shape, layout, tensor.dtype, tensor.requires_grad, keys, list(vars(tensor).items())


FORMS: dict[str, Any] = {
    "usual": lambda meta: FakeTensor(MODE, meta, torch.device("cpu")),
    "text": lambda meta: FakeTensor(MODE, meta, "cpu"),
    "index": lambda meta: FakeTensor(MODE, meta, torch.device("cpu", 0)),
    "empty": lambda meta: FakeTensor(MODE, meta, torch.device("cpu"), dispatch_keys=None, real_tensor=None),
    "keys": lambda meta: FakeTensor(MODE, meta, torch.device("cpu"), dispatch_keys=torch._C._dispatch_key_set(meta)),
    "state": lambda meta: FakeTensor(meta, fake_mode=MODE, fake_device="cpu"),
    "parameter": lambda meta: FakeTensor(MODE, meta, torch.device("cpu"), _is_param=True),
    "unknown": lambda meta: FakeTensor(MODE, meta, torch.device("cpu"), other=None),
    "no mode": lambda meta: FakeTensor(None, meta, torch.device("cpu")),
    "not meta": lambda meta: FakeTensor(MODE, torch.ones(2), torch.device("cpu")),
    "meta": lambda meta: FakeTensor(MODE, meta, torch.device("meta")),
    "subclass": lambda meta: type("Sub", (FakeTensor,), {})(MODE, meta, torch.device("cpu")),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_new_tensors_are_equal(form: str, requires_grad: bool) -> None:
    meta = torch.empty(3, 4, device="meta", requires_grad=requires_grad)[1:]

    def made() -> Any:
        try:
            kind, *facts = _facts(FORMS[form](meta))
            return kind.__name__, facts
        except Exception as error:
            return type(error), str(error)

    expected = made()
    with replaced(REPLACEMENTS):
        assert made() == expected


def test_a_tensor_with_a_wrong_device_is_not_made() -> None:
    with replaced(REPLACEMENTS), pytest.raises(AssertionError, match="must be 'meta'"):
        FakeTensor(MODE, torch.ones(2), torch.device("cpu"))


@pytest.mark.parametrize("include_real", [False, True])
def test_snapshots_are_equal(include_real: bool) -> None:
    def snapshots() -> list[Any]:
        made = [proxy_tensor.snapshot_fake(each, include_real) for each in TENSORS]
        shared = [tensor.layout == torch.strided and tensor._is_view() for tensor in made]
        return [*map(_facts, made), shared]

    expected = snapshots()
    with replaced(REPLACEMENTS):
        assert snapshots() == expected


class Text(str):
    """A string of another class."""


ARGUMENTS: list[Any] = [
    *((tensor,) for tensor in TENSORS),
    (TENSORS[3], [1, 2.0, True, None, "a", 1j], {"dtype": torch.int64, "device": torch.device("cpu")}),
    [TENSORS[3], (TENSORS[4], [TENSORS[3], Text("a")])],
    (torch.strided, torch.contiguous_format, slice(1), torch.Size([1]), range(2)),
    (torch.ones(2),),
    (lambda: None,),
    {"a": TENSORS[5], "b": []},
    (FakeTensorMode().from_tensor(torch.ones(2)),),
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda each: str(type(each)))
def test_keys_are_equal(arguments: Any) -> None:
    def key() -> Any:
        values: list[Any] = []
        try:
            MODE._prep_args_for_hash(values, arguments, _CacheKeyState(None), [])
        except fake_tensor._BypassDispatchCache as reason:
            return values, reason.reason
        return values, [type(each) for each in values]

    expected = key()
    with replaced(REPLACEMENTS):
        assert key() == expected
