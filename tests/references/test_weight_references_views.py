"""Tests of views of a model with other initializers and nodes."""

import onnx_ir as ir
import torch

import fx_onnx
from fx_onnx.references.weight_references import twin_of, view_of


def test_a_view_has_all_of_the_model():
    """It serializes to the same message, also functions, metadata and dynamic dims."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.GELU()).eval()
    model = fx_onnx.export(
        module, (torch.ones(4, 2),), dynamic_shapes=({0: "n"},), export_modules_as_functions=True
    ).model
    initializers = list(map(twin_of, model.graph.initializers.values()))
    view = view_of(model, initializers, list(model.graph))
    assert ir.serde.serialize_model(view) == ir.serde.serialize_model(model)
    assert view.functions.keys() == model.functions.keys() != set()


def test_other_initializers_and_nodes_do_not_change_the_model():
    model = fx_onnx.export(torch.nn.Linear(2, 3).eval(), (torch.ones(4, 2),)).model
    before = ir.serde.serialize_model(model)
    (weight, *others) = map(twin_of, model.graph.initializers.values())
    weight.const_value = ir.tensor([1.0])
    view = view_of(model, [weight, *others], list(model.graph)[:0])
    assert (len(view.graph), len(model.graph)) == (0, 1)
    assert ir.serde.serialize_model(model) == before
