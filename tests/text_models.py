"""Models that are written in ONNX's text format."""

import onnx
import onnx_ir as ir
import torch

from fx_onnx.onnx_model.weights import weight


def model_of(text, **weights):
    """Returns the model of a text. The weights are tensors of torch or of onnx_ir for values that no node computes."""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    free = {value.name: value for node in model.graph for value in node.inputs if value.producer() is None}
    for name, tensor in weights.items():
        value = free[name]
        value.const_value = weight(tensor, name) if isinstance(tensor, torch.Tensor) else tensor
        value.type, value.shape = ir.TensorType(value.const_value.dtype), value.const_value.shape
        model.graph.register_initializer(value)
    return model
