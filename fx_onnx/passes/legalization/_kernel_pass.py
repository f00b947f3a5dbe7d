"""The base of the legalizations that depend on the kernels of a runtime."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.core.kernel_tables import Kernel, first_kernels, since_version
from fx_onnx.passes.rewriter import Pass


class KernelPass(Pass):
    """A pass for the operators and dtypes for which a runtime has no kernel.

    Args:
        tables: the tables of kernels of the runtime's providers, by default that of ONNX Runtime's CPU provider. The
            first one that has an operator runs it.
    """

    def __init__(self, *tables: str) -> None:
        super().__init__()
        self.tables = tables or ("onnxruntime",)

    def kernels(self, node: ir.Node, opset: int) -> tuple[Kernel, ...]:
        """Returns the kernels of the provider that runs the node's operator; none if no provider has the operator."""
        version = since_version(node.op_type, opset)
        return () if version is None else first_kernels(self.tables, node.op_type, version)
