"""A cache of transformers that keeps what a program with a quantized cache keeps."""

from typing import Any

import transformers
from torch import Tensor

from fx_onnx.onnx_model.weights import as_torch
from fx_onnx.program.onnx_program import ONNXProgram


class Rounded(transformers.DynamicCache):
    """A cache that rounds what it gets, with the scales of a program."""

    def __init__(self, program: ONNXProgram, bits: int) -> None:
        super().__init__()
        self.weights, self.top = program.model.graph.initializers, 2 ** (bits - 1)

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Rounds keys and values before they are kept."""
        rounded = []
        for tensor, part in ((keys, "key"), (values, "value")):
            stored = self.weights[f"past_key_values.{layer_idx}.{part}_scale"].const_value
            assert stored is not None
            scale = as_torch(stored)
            rounded.append(((tensor / scale).round().clamp(-self.top, self.top - 1) * scale).to(tensor.dtype))
        return super().update(*rounded, layer_idx, *args, **kwargs)
