"""ATen → ATen: decompositions of operators into simpler ones, in plain torch.

A decomposition is a function with the parameters of the operator's ATen schema. It computes the same result with other
torch functions. It must not read the values of a tensor, and must not branch on a symbolic size, because that would
specialize the size. This folder knows nothing about ONNX and imports nothing else of the package.
"""

import importlib
import pkgutil

from fx_onnx.decompositions.registry import DECOMPOSITIONS, decomposes

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["DECOMPOSITIONS", "decomposes"]
