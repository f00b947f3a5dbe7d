"""PyTorch's operators by name: ``aten.add.Tensor`` is ``torch.ops.aten.add.Tensor``.

A name that the installed torch lacks gives an ``Operator``, which is equal to no target of a captured graph, and which
``translates`` skips. With ``torch.ops``, the import would fail.
"""

from fx_onnx.decompositions.registry import Operator, aten
from fx_onnx.decompositions.registry import quantized as quantized_decomposed

__all__ = ["Operator", "aten", "quantized_decomposed"]
