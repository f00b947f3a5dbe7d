"""Translations of ATen operators to ONNX nodes, one family of operators in each file.

A family imports the helpers whose names begin with an underscore, but no other family.
Importing this package registers every translation.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
