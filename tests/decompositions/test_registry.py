"""The registration of decompositions, in any version of torch."""

import pytest
import torch

from fx_onnx.decompositions.registry import (
    COMPLEX,
    DECOMPOSITIONS,
    Operator,
    aten,
    complex_decomposes,
    decomposes,
    quantized,
)


def test_names_give_torchs_operators() -> None:
    assert aten.add.Tensor is torch.ops.aten.add.Tensor
    assert quantized.choose_qparams.tensor is torch.ops.quantized_decomposed.choose_qparams.tensor
    assert aten.sin.torch_operator is torch.ops.aten.sin
    assert torch.equal(aten.sin(torch.ones(2)), torch.sin(torch.ones(2)))


def test_an_operator_that_torch_lacks_is_skipped() -> None:
    before = len(DECOMPOSITIONS), len(COMPLEX)
    decomposes(aten.no_such_operator.default, aten.add.no_such_overload)(lambda: None)
    complex_decomposes(aten.no_such_operator)(lambda: None)
    assert (len(DECOMPOSITIONS), len(COMPLEX)) == before


def test_an_operator_that_torch_lacks_cannot_be_called() -> None:
    assert isinstance(aten.add.no_such_overload, Operator)
    with pytest.raises(NotImplementedError, match=r"has no operator aten::add\.no_such_overload"):
        aten.add.no_such_overload(1, 2)
    with pytest.raises(NotImplementedError, match="has no operator aten::no_such_operator"):
        aten.no_such_operator(1)


def test_two_decompositions_of_one_operator_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPLEX, torch.ops.aten.sin, len)
    with pytest.raises(ValueError, match="has two decompositions"):
        decomposes(aten.silu.default)(lambda: None)
    with pytest.raises(ValueError, match="has two decompositions"):
        complex_decomposes(aten.sin)(lambda: None)
