"""PyTorch's operators by name, as ``aten.add.Tensor`` is ``torch.ops.aten.add.Tensor``, and the nodes that call them.

A name that the installed torch lacks gives an ``Operator``, which is equal to no target of a captured graph, and which
``translates`` skips. With ``torch.ops``, the import would fail.
"""

from collections.abc import Iterator

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from fx_onnx.decompositions.registry import Operator, aten
from fx_onnx.decompositions.registry import quantized as quantized_decomposed

__all__ = ["Operator", "aten", "nodes_of", "quantized_decomposed"]


def nodes_of(program: ExportedProgram) -> Iterator[Node]:
    """Yields the nodes of a captured program, those of the bodies of its control flow and of its regions among them."""
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes
