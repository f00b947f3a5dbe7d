"""transformers' exporters to ONNX on fx_onnx: its own for torch.onnx with its patches, and the backend without them."""

import copy
from typing import Any

from torch import nn
from torch.export import Dim
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

import fx_onnx
from fx_onnx.integrations.transformers_backend import FxOnnxConfig, FxOnnxExporter
from tests.models.families import Family

PATCHED, PLAIN = "as it is", "patches off"


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
    config, exporter = (OnnxConfig, OnnxExporter) if way == PATCHED else (FxOnnxConfig, FxOnnxExporter)
    with fx_onnx.replacing_torch_onnx():
        return exporter().export(module, copy.deepcopy(inputs), config=config(dynamic=True, dynamic_shapes=shapes))
