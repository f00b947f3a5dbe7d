"""transformers' own exporter to ONNX, calling fx_onnx instead of torch.onnx: with its patches and without them.

For torch.onnx it patches functions of torch, the captured graph, the translations and the ONNX model: see the docstring
of `transformers.exporters.exporter_onnx`. Its patches for torch.export stay in both modes.
"""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch import nn
from torch.export import Dim
from transformers.exporters import exporter_onnx, utils
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

import fx_onnx
from tests.models.families import Family

PATCHED, PLAIN = "as it is", "patches off"


@contextmanager
def _fx_onnx_as_torch_onnx(patched: bool) -> Iterator[None]:
    """Lets torch.onnx export through fx_onnx, and removes the patches for torch.onnx unless ``patched``."""
    with fx_onnx.replacing_torch_onnx(), ExitStack() as stack:
        if not patched:
            for registry in (utils._PATCHES, utils._FX_NODE_FIXES):
                stack.enter_context(patch.dict(registry, {"onnx": []}))
            stack.enter_context(patch.dict(exporter_onnx._ONNX_TRANSLATION_TABLE, clear=True))
            stack.enter_context(patch.object(exporter_onnx, "_IR_FIXES", []))
        yield


def exported(family: Family, module: nn.Module, inputs: dict[str, Any], way: str) -> Any:
    """Returns the exporter's program of a family's module, which takes the module's arguments.

    Args:
        family: gives the dynamic dims.
        module: a module of the family; this sets `use_cache` to False in its configs.
        inputs: arguments of the module; `use_cache` is removed, because the exporter takes it from the configs.
        way: `PATCHED` or `PLAIN`.
    """
    for part in module.modules():
        if hasattr(part, "config"):
            part.config.use_cache = False
    inputs = {name: value for name, value in inputs.items() if name != "use_cache"}
    requested = family.dynamic_shapes(inputs)
    shapes = {name: axes and dict.fromkeys(axes, Dim.AUTO) for name, axes in requested.items()}
    config = OnnxConfig(dynamic=True, dynamic_shapes=shapes)
    with _fx_onnx_as_torch_onnx(way == PATCHED):
        return OnnxExporter().export(module, copy.deepcopy(inputs), config=config)
