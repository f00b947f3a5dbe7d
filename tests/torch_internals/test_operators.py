"""The operators by name, and what the translation table does with one that torch lacks."""

import torch

from fx_onnx.extension_points.translation_table import registered_translations, translates
from fx_onnx.torch_internals.operators import Operator, aten, nodes_of, quantized_decomposed
from tests.modules import FunctionModule


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


def test_the_nodes_of_branches_are_nodes_of_a_program() -> None:
    module = FunctionModule(lambda x: torch.cond(x.sum() > 0, torch.exp, torch.neg, (x,)))
    program = torch.export.export(module, (torch.randn(2),))
    targets = {node.target for node in nodes_of(program)}
    assert targets >= {aten.sum.default, aten.exp.default, aten.neg.default}
