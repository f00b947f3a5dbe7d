"""ATen → ATen: decompositions of operators into simpler ones, in plain torch.

A decomposition is a function with the parameters of the operator's ATen schema. It computes the same result with other
torch functions. It must not read the values of a tensor, and must not branch on a symbolic size, because that would
specialize the size. This folder knows nothing about ONNX and imports nothing else of the package.

A file is imported when one of its decompositions is first looked up. ``_index.py``, which is generated, tells which.
"""

import importlib
import pkgutil
from functools import cache
from typing import Any

from fx_onnx.decompositions import registry
from fx_onnx.decompositions._index import FILES
from fx_onnx.decompositions.registry import decomposes

__all__ = ["DECOMPOSITIONS", "decomposes", "load", "load_all"]


def load(name: str | None) -> None:
    """Imports the files with the decompositions of an operator, by its name; all files if the index lacks the name."""
    for file in FILES.get(str(name), ()):
        importlib.import_module(f"{__name__}.{file}")
    if name not in FILES:
        load_all()


@cache
def load_all() -> None:
    """Imports all files, which fill the tables of the registry."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def __getattr__(name: str) -> Any:
    """Returns the whole table of decompositions."""
    if name != "DECOMPOSITIONS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load_all()
    return registry.DECOMPOSITIONS
