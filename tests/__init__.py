"""Prepares the import of transformers, which the tests of models need."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _TorchvisionFirst(MetaPathFinder):
    """Imports torchvision, with replacements for its kernels where needed, just before transformers is imported.

    transformers imports torchvision if it is installed, and fails where torchvision's library does not load.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "transformers" and self in sys.meta_path:
            sys.meta_path.remove(self)
            import tests.torchvision_cpu  # noqa: F401


if importlib.util.find_spec("torchvision") is not None:
    if "transformers" in sys.modules:  # imported already; it imports torchvision when a model is first used
        import tests.torchvision_cpu  # noqa: F401
    else:
        sys.meta_path.insert(0, _TorchvisionFirst())
