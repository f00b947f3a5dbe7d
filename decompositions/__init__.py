"""ATen → ATen: decompositions of operators into simpler ones, in plain torch.

A decomposition is a function with the parameters of the operator's ATen schema. It computes the same result with other
torch functions. It must not read the values of a tensor, and must not branch on a symbolic size, because that would
specialize the size. This folder knows nothing about ONNX and imports nothing else of the package.

The files are imported when a decomposition is first looked up, because many models need none.
"""

import importlib
import pkgutil
from functools import cache
from typing import Any

from fx_onnx.decompositions import registry
from fx_onnx.decompositions.registry import decomposes

__all__ = ["DECOMPOSITIONS", "decomposes", "load"]


@cache
def load() -> None:
    """Imports all files, which fill the tables of the registry."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def __getattr__(name: str) -> Any:
    """Returns the whole table of decompositions."""
    if name != "DECOMPOSITIONS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load()
    return registry.DECOMPOSITIONS
