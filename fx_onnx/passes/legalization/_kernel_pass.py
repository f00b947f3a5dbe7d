"""The base of the legalizations that depend on the kernels of a runtime."""

from __future__ import annotations

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
