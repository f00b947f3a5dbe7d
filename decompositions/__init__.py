"""ATen → ATen: what an operator means in terms of simpler ones, in plain torch.

Nothing here knows of ONNX. A decomposition is a function with the ATen schema's parameters that computes the same with
other torch functions; it must not look at values, nor ask torch a question about a symbolic size (which would fix it).
"""

import importlib
import pkgutil

from fx_onnx.decompositions.registry import DECOMPOSITIONS, decomposes

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["DECOMPOSITIONS", "decomposes"]
