"""Adapters of peft: their weights are optional inputs of the graphs, so an application changes them between two runs.

Each Linear layer that an adapter changes adds ``(x @ lora_A) @ lora_B`` to its result. Both matrices are inputs whose
default is zero, so the graph without an adapter computes what the model computes. An adapter becomes one file of ONNX
Runtime for each graph, which the options of a run take.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from fx_onnx.applications.parts import Part
from fx_onnx.messages.arguments import check_path
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.threads import hook_in_this_thread

__all__ = ["Adapter", "adapted", "make_optional", "read_adapter", "write_adapter"]

_PREFIX, _KINDS, _LORA = "base_model.model.", ("lora_A", "lora_B"), "lora"


@dataclass(frozen=True)
class Adapter:
    """An adapter.

    Attributes:
        name: its name.
        pairs: the path of a Linear layer → float32 (inputs, rank) and (rank, outputs), of which the second is scaled.
    """

    name: str
    pairs: Mapping[str, tuple[Tensor, Tensor]]


def read_adapter(name: str, folder: Any) -> Adapter:
    """Returns an adapter that ``save_pretrained`` of peft wrote.

    Raises:
        ArgumentError: it is no such folder, or changes more than the products of Linear layers.
    """
    check_path("adapter", folder)
    source = Path(folder)
    if Path(name).name != name:
        raise ArgumentError(
            f"The name {name!r} of an adapter is no name of a folder; choose another one.", id=MessageId.MODEL_SOURCE
        )
    try:
        from safetensors.torch import load_file

        config = json.loads((source / "adapter_config.json").read_text(encoding="utf-8"))
        weights = load_file(source / "adapter_model.safetensors")
    except (OSError, ValueError, ImportError) as error:
        raise ArgumentError(
            f"The adapter {name} cannot be read from {source}: {error}; `save_pretrained` of peft writes one.",
            id=MessageId.MODEL_SOURCE,
        ) from error
    pairs: dict[str, dict[str, Tensor]] = {}
    for key, weight in weights.items():
        path, _, kind = key.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".")
        if kind not in _KINDS or weight.dim() != 2:
            raise ArgumentError(
                f"The adapter {name} has the weight {key}, which is no lora_A or lora_B of a Linear layer; merge it "
                "into the model with peft's `merge_and_unload`.",
                id=MessageId.MODEL_SOURCE,
            )
        pairs.setdefault(path, {})[kind] = weight.float().t().contiguous()
    scaled = {path: (pair["lora_A"], pair["lora_B"] * _scale(config, path)) for path, pair in pairs.items()}
    return Adapter(name, scaled)


def _scale(config: Mapping[str, Any], path: str) -> float:
    """Returns the factor of a layer: that of a pattern which fits the end of its path, or that of all layers."""

    def of_layer(patterns: str, default: str) -> float:
        rows = config.get(patterns) or {}
        return float(next((rows[key] for key in rows if re.fullmatch(rf"(.*\.)?({key})", path)), config[default]))

    rank = of_layer("rank_pattern", "r")
    return of_layer("alpha_pattern", "lora_alpha") / (rank**0.5 if config.get("use_rslora") else rank)


@contextmanager
def adapted(model: Any, adapters: Sequence[Adapter]) -> Iterator[Callable[[Part], Part]]:
    """Lets layers of a model add products, and yields what gives a part the inputs of the layers that it runs.

    Without adapters, nothing changes.

    Raises:
        ArgumentError: the model lacks a layer of an adapter, or it has other sizes.
    """
    current: dict[str, Tensor] = {}
    ran: dict[str, None] = {}

    def add(path: str, _: Any, args: Any, result: Tensor) -> Tensor:
        ran[path] = None
        if not current:
            return result
        first, second = (current[name].to(result.dtype) for name in _names(path))
        added: Tensor = (args[0] @ first) @ second
        return result + added

    def put(weights: dict[str, Tensor]) -> None:
        current.clear()
        current.update(weights)

    def extend(part: Part) -> Part:
        if not adapters:
            return part
        ran.clear()
        with torch.no_grad():
            part.module(**copy.deepcopy(part.kwargs))
        if not ran:
            return part
        module = _Adapted(part.module, {path: sizes[path] for path in ran}, put).eval()
        kwargs = {**part.kwargs, _LORA: _weights(adapters[0], module.sizes)}
        dims = {name: {axis: "rank"} for path in ran for axis, name in zip((1, 0), _names(path), strict=True)}
        shapes = {**part.dynamic_shapes, _LORA: dims}
        return replace(part, module=module, kwargs=kwargs, dynamic_shapes=shapes)

    sizes = dict(_sizes(model, adapters))
    hooks = [model.get_submodule(path).register_forward_hook(hook_in_this_thread(partial(add, path))) for path in sizes]
    try:
        yield extend
    finally:
        for hook in hooks:
            hook.remove()


class _Adapted(torch.nn.Module):
    """Runs a module whose layers add products of further inputs."""

    def __init__(
        self, module: torch.nn.Module, sizes: Mapping[str, tuple[int, int]], put: Callable[[dict[str, Tensor]], None]
    ) -> None:
        super().__init__()
        self.module, self.sizes, self.put = module, dict(sizes), put

    def forward(self, **inputs: Any) -> Any:
        """Takes the inputs of the module, and as ``lora`` two matrices of each layer in ``sizes``."""
        self.put(inputs.pop(_LORA))
        try:
            return self.module(**inputs)
        finally:
            self.put({})


def _names(path: str) -> tuple[str, str]:
    return f"{path}.{_KINDS[0]}", f"{path}.{_KINDS[1]}"


def _sizes(model: Any, adapters: Sequence[Adapter]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yields the layers of all adapters, with the sizes of their inputs and outputs."""
    layers = dict(model.named_modules()) if adapters and hasattr(model, "named_modules") else {}
    for adapter in adapters:
        for path, (first, second) in adapter.pairs.items():
            weight = getattr(layers.get(path), "weight", None)
            sizes = (first.shape[0], second.shape[1])
            if weight is None or sorted(sizes) != sorted(weight.shape):
                raise ArgumentError(
                    f"The adapter {adapter.name} changes the layer {path} of {sizes[0]} inputs and {sizes[1]} outputs, "
                    f"which {type(model).__name__} lacks; it belongs to another model or task.",
                    id=MessageId.MODEL_SOURCE,
                )
            yield path, sizes


def _weights(adapter: Adapter, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
    """Returns the inputs of layers, of one rank. What an adapter lacks is zero."""
    rank, weights = max(first.shape[1] for first, _ in adapter.pairs.values()), dict[str, Tensor]()
    for path, (inputs, outputs) in sizes.items():
        pair = adapter.pairs.get(path, (torch.zeros(inputs, 0), torch.zeros(0, outputs)))
        missing = rank - pair[0].shape[1]
        padded = torch.nn.functional.pad(pair[0], (0, missing)), torch.nn.functional.pad(pair[1], (0, 0, 0, missing))
        weights |= zip(_names(path), padded, strict=True)
    return weights


def make_optional(model: ir.Model, part: Part) -> None:
    """Gives the inputs of the layers a default of zeros, of rank 1."""
    for path, (inputs, outputs) in _sizes_of(part).items():
        for name, shape in zip(_names(path), ((inputs, 1), (1, outputs)), strict=True):
            value = next(graph_input for graph_input in model.graph.inputs if graph_input.name == f"{_LORA}.{name}")
            value.const_value = ir.tensor(np.zeros(shape, np.float32), name=value.name)
            model.graph.register_initializer(value)


def write_adapter(adapter: Adapter, part: Part, file: Path) -> None:
    """Writes the inputs of the layers of a part, if it has any, as ONNX Runtime's file of an adapter.

    Raises:
        OSError: it cannot be written, of which ONNX Runtime does not tell the cause.
    """
    import onnxruntime

    if sizes := _sizes_of(part):
        form, value = onnxruntime.AdapterFormat(), onnxruntime.OrtValue.ortvalue_from_numpy
        weights = _weights(adapter, sizes)
        form.set_parameters({f"{_LORA}.{name}": value(weights[name].numpy()) for name in weights})
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            form.export_adapter(str(file))
        except RuntimeError as error:
            raise OSError(f"ONNX Runtime cannot write {file.name}") from error


def _sizes_of(part: Part) -> Mapping[str, tuple[int, int]]:
    return part.module.sizes if isinstance(part.module, _Adapted) else {}
