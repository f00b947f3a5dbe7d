"""Compiles a model with TensorRT for RTX, if its package is installed. No GPU is needed, and nothing is run."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from fx_onnx.backends import tensorrt_engine
from fx_onnx.passes.traversal import all_nodes, graphs_of
from fx_onnx.targets.compilation import Compilation, Refusal, one_line

__all__ = ["PLUGINS", "compile_model", "libraries"]

PLUGINS = frozenset({"NonZero"})
"""The operators of ONNX that are plug-ins of the provider. These need a GPU to be created, so no file with one is
compiled here."""

_PACKAGE = "onnxruntime_ep_nv_tensorrt_rtx"
_NOT_INSTALLED = "its compiler is not installed, which the extra fx_onnx[tensorrt] has"
_SECONDS = 600
_SHAPE_INPUTS = ("shape inputs, but no optimization profile", "missing values for shape input")
_RUNTIME = f"TensorRT for RTX {tensorrt_engine.VERSION}, for compute capability 8.6 and above"


@functools.cache
def libraries() -> Path | None:
    """Returns the folder of the libraries of onnxruntime-ep-nv-tensorrt-rtx; None without the known version of them."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = [] if spec is None else map(Path, spec.submodule_search_locations or ())
    name = f"libtensorrt_rtx.so.{tensorrt_engine.VERSION}"
    return next((folder for folder in folders if (folder / name).exists()), None)


def compile_model(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> Compilation:
    """Parses a model with NVIDIA's parser and builds an engine, if the package is installed.

    Args:
        model: the model.
        shapes: the shape of each input with dynamic dims, by name. The engine takes it and the shape with twice the
            dynamic sizes, unless a dim is computed from others.

    The weights are written to a temporary folder.
    """
    folder = libraries()
    if folder is None:
        return Compilation(_RUNTIME, unjudged=_NOT_INSTALLED)
    plugin = next((node for graph in graphs_of(model) for node in all_nodes(graph) if _is_plugin(node)), None)
    if plugin is not None:
        return Compilation(_RUNTIME, unjudged=f"{plugin.op_type} is a plug-in, which only a GPU can check")
    ranges = profile(model, shapes)
    if ranges is None:
        return Compilation(_RUNTIME, unjudged="the sizes of its dynamic dims are not known; give shapes")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.onnx"
        ir.save(model, path, external_data="weights.bin")
        return _compiled([str(folder), str(path)], ranges)


def _is_plugin(node: ir.Node) -> bool:
    return bool(node.domain) or node.op_type in PLUGINS


def _compiled(arguments: Sequence[str], ranges: Mapping[str, Any]) -> Compilation:
    """Runs the compiler in a process of its own, which it may end."""
    command = [sys.executable, tensorrt_engine.__file__, *arguments]
    try:
        run = subprocess.run(
            command, input=json.dumps(ranges), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Compilation(_RUNTIME, refusals=(Refusal(f"there is no engine after {_SECONDS} s"),))
    if run.returncode:
        return Compilation(_RUNTIME, refusals=(Refusal(f"the compiler ended: {run.stderr[-300:].strip()}"),))
    said = json.loads(run.stdout[run.stdout.index('{"parsed"') :])
    refusals = [Refusal(one_line(row["text"]), row["node"], row["operator"]) for row in said["problems"]]
    if any(words in text for text in said["errors"] for words in _SHAPE_INPUTS):
        return Compilation(_RUNTIME, unjudged="the values of an input are sizes, which the profile would have to name")
    if not said["bytes"] and not refusals:
        refusals.append(Refusal(one_line("; ".join(said["errors"][-2:]))))
    return Compilation(_RUNTIME, tuple(refusals), said["bytes"], tuple(said["kernels"]))


def profile(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> dict[str, list[list[int]]] | None:
    """Returns the smallest, the usual and the largest shape of each input with dynamic dims; None if one is unknown."""
    dims = {
        str(value.name): list(value.shape)
        for value in model.graph.inputs
        if value.shape is not None and not value.is_initializer() and not value.shape.is_static()
    }
    if not dims.keys() <= shapes.keys():
        return None
    are_plain = all(isinstance(dim, int) or str(dim.value).isidentifier() for row in dims.values() for dim in row)
    factor = 2 if are_plain else 1
    ranges = {}
    for name, row in dims.items():
        usual = [dim if isinstance(dim, int) else size for dim, size in zip(row, shapes[name], strict=True)]
        largest = [dim if isinstance(dim, int) else factor * size for dim, size in zip(row, usual, strict=True)]
        ranges[name] = [usual, usual, largest]
    return ranges
