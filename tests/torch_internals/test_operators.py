"""The operators by name, and what the translation table does with one that torch lacks."""

import torch

from fx_onnx.extension_points.translation_table import registered_translations, translates
from fx_onnx.torch_internals.operators import Operator, aten, quantized_decomposed


def test_names_give_torchs_operators() -> None:
    assert aten.add.Tensor is torch.ops.aten.add.Tensor
    assert (
        quantized_decomposed.quantize_per_tensor.default is torch.ops.quantized_decomposed.quantize_per_tensor.default
    )


def test_an_operator_that_torch_lacks_has_no_translation() -> None:
    before = len(registered_translations())
    assert isinstance(aten.no_such_operator.default, Operator)
    translates(aten.no_such_operator.default, aten.add.no_such_overload)(lambda op, self: self)
    assert len(registered_translations()) == before
