"""Quantized caches: a decoder keeps keys and values in 8 or 4 bits between its calls.

ONNX Runtime's GroupQueryAttention rounds new keys and values, writes them into the cache, and reads them from it. Each
channel of a head has a scale, which is the largest magnitude of the channel in calibration texts. There are no zero
points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor

from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.dtypes import torch_dtype
from fx_onnx.onnx_model.tolerances import relative_distance
from fx_onnx.onnx_model.weights import weight
from fx_onnx.program.input_binding import bind_input
from fx_onnx.program.session import LoadedModel

__all__ = ["CACHES", "quantized_cache"]

CACHES = {"int8-cache": 8, "int4-cache": 4}
"""The name of a precision → the bits of a number in the cache."""

Tensors = Mapping[str, Tensor]

_PASTS, _PRESENTS, _SCALES = (3, 4), (1, 2), (12, 13)
"""The inputs of GroupQueryAttention that are keys and values of the past, its outputs that are those of the next call,
and the inputs that are their scales."""
_MADE = ("attention_mask", "position_ids")
"""Inputs that tell the places of tokens. A text has no padding, so they are made here."""


def quantized_cache(
    model: ir.Model, calibration: Sequence[Any], precision: str, compared: int
) -> tuple[ir.Model, float]:
    """Returns a decoder with a cache of integers, and how far its results are.

    The texts are run but for the last token, and then the last token with the cache of the others.

    Args:
        model: a decoder whose layers write the cache in GroupQueryAttention. It does not change.
        calibration: texts: dicts of the inputs for tokens, (batch, length, ...) each.
        precision: a name in ``CACHES``.
        compared: the number of texts whose results are compared. Of twice as many or more, they set no ranges.

    Raises:
        ArgumentError: the model has no such cache, or a text does not fit.
    """
    caches = _caches(model.graph)
    texts = [_text(model.graph, caches, number, given) for number, given in enumerate(calibration)]
    ranges, expected = dict[str, Tensor](), list[list[Tensor]]()
    with LoadedModel(model) as loaded:
        for number, text in enumerate(texts):
            results, presents = _run(loaded, model.graph, caches, text)
            if number < compared:
                expected.append(results)
            if number >= compared or len(texts) < 2 * compared:
                for name, present in presents.items():
                    largest = present.float().abs().amax((0, 2), keepdim=True)
                    ranges[name] = torch.maximum(ranges.get(name, largest), largest)
            if not all(bool(tensor.isfinite().all()) for tensor in (*results, *ranges.values())):
                raise ArgumentError(f"A result, key or value is not finite for calibration[{number}]; leave it out.")
    quantized = model.clone()
    _quantize(quantized.graph, ranges, CACHES[precision])
    with LoadedModel(quantized) as loaded:
        found = [_run(loaded, quantized.graph, caches, text)[0] for text in texts[:compared]]
    return quantized, max(map(relative_distance, found, expected))


def _caches(graph: ir.Graph) -> dict[str, str]:
    """Returns the name of each input of keys or values → that of the output that is it in the next call.

    Raises:
        ArgumentError: there is none, or another node reads or writes it.
    """
    caches = {}
    for node in _layers(graph):
        for past, present in zip(_PASTS, _PRESENTS, strict=True):
            before, after = node.inputs[past], node.outputs[present]
            is_own = before is not None and before.is_graph_input() and len(before.uses()) == 1
            if before is None or not (is_own and after.is_graph_output() and not after.uses() and _is_float(before)):
                raise ArgumentError(f"The cache of {node.name!r} is no input and output of floats of this node alone.")
            caches[str(before.name)] = str(after.name)
    if not caches:
        raise ArgumentError(
            "The program has no cache that GroupQueryAttention writes; export a decoder with "
            "fx_onnx.text_generation_arguments(model, full_cache=True) and target='onnxruntime-genai'.",
            id=MessageId.CONFLICTING_ARGUMENTS,
        )
    return caches


def _layers(graph: ir.Graph) -> Iterator[ir.Node]:
    return (node for node in graph if (node.domain, node.op_type) == ("com.microsoft", "GroupQueryAttention"))


def _is_float(value: ir.Value) -> bool:
    return value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _text(graph: ir.Graph, caches: Mapping[str, str], number: int, given: Any) -> dict[str, Tensor]:
    """Returns the inputs for tokens of a calibration text.

    Raises:
        ArgumentError: it lacks one, or has others, padding, or one token only.
    """
    what, wanted = f"calibration[{number}]", [str(value.name) for value in graph.inputs if not value.is_initializer()]
    wanted = [name for name in wanted if name not in caches and name not in _MADE]
    if not isinstance(given, Mapping) or not all(isinstance(tensor, Tensor) for tensor in given.values()):
        raise ArgumentError(f"{what} must be a dict of tensors by the names of inputs, not {shown(given)}.")
    if "attention_mask" in given and not bool(given["attention_mask"].all()):
        raise ArgumentError(f"{what} has padding; give each text of another length alone.")
    if {*given} - {"attention_mask"} != {*wanted}:
        raise ArgumentError(f"{what} must have the inputs {', '.join(wanted)}, not {', '.join(given) or 'none'}.")
    text = {name: given[name] for name in wanted}
    if any(tensor.dim() < 2 or tensor.shape[1] < 2 for tensor in text.values()):
        raise ArgumentError(f"{what} must have two tokens or more: the last one is run with the cache of the others.")
    return text


def _run(
    loaded: LoadedModel, graph: ir.Graph, caches: Mapping[str, str], text: Tensors
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Returns the results of both calls, and the keys and values of the whole text by the name of the input."""
    names, results, presents = [str(value.name) for value in graph.outputs], list[Tensor](), dict[str, Tensor]()
    for tokens in ({name: x[:, :-1] for name, x in text.items()}, {name: x[:, -1:] for name, x in text.items()}):
        outputs = dict(zip(names, loaded.run(_feed(graph, caches, tokens, presents)), strict=True))
        presents = {past: outputs.pop(present) for past, present in caches.items()}
        results += [tensor for tensor in outputs.values() if tensor.is_floating_point()]
    return results, presents


def _feed(graph: ir.Graph, caches: Mapping[str, str], tokens: Tensors, pasts: Tensors) -> dict[str, Tensor]:
    """Returns all inputs of a call. Without ``pasts`` the cache is empty."""
    batch, length = next(iter(tokens.values())).shape[:2]
    before = next(iter(pasts.values())).shape[2] if pasts else 0
    feed = {**tokens, **pasts}
    for value in graph.inputs:
        name, dtype = str(value.name), torch_dtype(value.dtype or ir.DataType.FLOAT)
        if name == "attention_mask":
            feed[name] = torch.ones(batch, before + length, dtype=dtype)
        elif name == "position_ids":  # some models have an axis for frames, rows and columns before the batch
            axes = tuple(dim for dim in (value.shape or ())[:-2] if isinstance(dim, int))
            feed[name] = torch.arange(before, before + length, dtype=dtype).repeat(*axes, batch, 1)
        elif name in caches and not pasts:
            _, heads, _, size = value.shape or (None, None, None, None)
            feed[name] = torch.empty(batch, heads, 0, size, dtype=dtype)  # type: ignore[arg-type]
        elif name in tokens:
            feed[name] = bind_input(value, tokens[name])
    return feed


def _quantize(graph: ir.Graph, ranges: Tensors, bits: int) -> None:
    """Makes the cache integers with a scale for each channel."""
    for node in _layers(graph):
        node.resize_inputs(max(_SCALES) + 1)
        for past, present, scales, kind in zip(_PASTS, _PRESENTS, _SCALES, "kv", strict=True):
            before: Any = node.inputs[past]
            name, after = str(before.name), node.outputs[present]
            scale = ir.Value(name=f"{name}_scale")
            scale.const_value = weight(_scale(ranges[name], bits), str(scale.name))
            scale.dtype, scale.shape = ir.DataType.FLOAT, ir.Shape(ranges[name].shape)
            graph.register_initializer(scale)
            node.replace_input_with(scales, scale)
            node.attributes.add(ir.AttrString(f"{kind}_quant_type", "PER_CHANNEL"))
            for value in (before, after):
                value.type = ir.TensorType(ir.DataType.INT8 if bits == 8 else ir.DataType.UINT8)
                if bits == 4 and value.shape is not None:  # two numbers in a byte
                    sizes: Any = value.shape
                    value.shape = ir.Shape([*sizes[:-1], sizes[-1] // 2])
        node.attributes.add(ir.AttrInt64("kv_cache_bit_width", bits))


def _scale(largest: Tensor, bits: int) -> Tensor:
    """Returns the scale of each channel. One that is 0 in all texts has the largest of the others."""
    scale = largest / (2 ** (bits - 1) - 1)
    whole = scale.max() if bool(scale.any()) else torch.ones(())
    return torch.where(scale > 0, scale, whole)
