"""The functional variant of each ATen operator that writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fx_onnx.aten.alias_analysis import functional_variant, is_write
from fx_onnx.messages.errors import MutationError

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("writing", "pure"),
    [
        (aten.add_.Tensor, aten.add.Tensor),
        (aten.relu_.default, aten.relu.default),
        (aten.add.out, aten.add.Tensor),
        (aten.mul_.Scalar, aten.mul.Scalar),
        (aten.index_put_.default, aten.index_put.default),
        (aten.div_.Tensor_mode, aten.div.Tensor_mode),
        (aten.squeeze_.dim, aten.squeeze.dim),
        (aten.copy_.default, aten.copy.default),
        (aten.zero_.default, aten.zero.default),
        (aten.__iand__.Tensor, aten.bitwise_and.Tensor),
        (aten.__ior__.Scalar, aten.bitwise_or.Scalar),
        (aten.__ilshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar),
        (aten.dropout_.default, aten.dropout.default),
        (aten.normal_.default, aten.normal_functional.default),
        (aten.fill_.Scalar, aten.fill.Scalar),
        (aten.masked_fill_.Scalar, aten.masked_fill.Scalar),
    ],
)
def test_functional_variants(writing: Any, pure: Any) -> None:
    assert functional_variant(writing) is pure


def _in_place_methods() -> Iterator[Any]:
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::") and packet.endswith("_") and not packet.startswith("_"):
            target = getattr(getattr(aten, packet), overload or "default")
            if is_write(target):
                yield target


def test_almost_every_in_place_method_has_a_pure_variant() -> None:
    missing = set()
    for target in _in_place_methods():
        try:
            assert not functional_variant(target)._schema.is_mutable
        except MutationError as error:
            assert str(target) in str(error)
            missing.add(str(target))
    missing.discard("aten.shallow_copy_data_.default")  # torch 2.14 has it; check_data_assignment refuses it
    assert missing == {"aten.polygamma_.default", "aten.requires_grad_.default"}
