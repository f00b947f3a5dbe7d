"""Static quantization: layers of a program compute with integers, in ranges that calibration inputs give.

Layers stay in floats until the results are near enough.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx_ir as ir
from torch import Tensor

from fx_onnx.messages.arguments import check_inputs, check_tolerance, did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.program.input_binding import bind
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.session import LoadedModel, refuse_fallback
from fx_onnx.quantized_weights.quantization_tool import DTYPES, RANGES, Inputs, QuantizationTool, form_of
from fx_onnx.quantized_weights.quantized_caches import CACHES, quantized_cache
from fx_onnx.targets.known_targets import find_target
from fx_onnx.targets.onnxruntime import TARGET
from fx_onnx.targets.target import Target

__all__ = ["Quantized", "quantize"]

_COMPARED = 8
"""The number of calibration inputs on which results are compared. Of twice as many or more, they set no ranges."""


@dataclass(frozen=True)
class Quantized:
    """A program whose layers compute with integers, or whose cache has them.

    Attributes:
        program: the new program. It has the inputs, outputs and dims of the old one, but for the dtype of a cache.
        kept: the layers that compute in floats: the path of the module, or the name of the node.
        distance: the largest difference of its results from those of the old program on the first 8 calibration inputs,
            relative to the largest result. If there are 16 inputs or more, these 8 do not set ranges. For a target of
            CPUs, ONNX Runtime's kernels of integers compute it.
    """

    program: ONNXProgram
    kept: tuple[str, ...]
    distance: float


def quantize(
    program: ONNXProgram,
    calibration: Iterable[Any],
    *,
    precision: str = "int8-static",
    ranges: str = "minmax",
    largest_distance: float = 0.1,
    target: str | Target | None = None,
) -> Quantized:
    """Returns a program whose layers compute with integers, or whose cache has them. The given one does not change.

    Args:
        program: of float32, in opset 13 or above. For ``a16w8`` and ``a16w4`` it needs opset 21.
        calibration: inputs like those that the program will get, such as 100 images. Each is a tensor, a tuple of
            arguments, or a dict of arguments by name. They are read once. Values out of their ranges are limited later.
            For a cache, each is a text: a dict with ``input_ids``, and what else has a value for each token.
        precision: ``int8-static``: activations and weights of 8 bits; ``a16w8`` and ``a16w4``: activations of 16 bits
            and weights of 8 or 4 bits for NPUs, which ONNX Runtime's CPU provider computes in floats; ``int8-cache``
            and ``int4-cache``: keys and values of a decoder for ``onnxruntime-genai``, with a scale for each channel.
        ranges: the range of an activation: ``minmax`` is that of all its values, ``percentile`` leaves out the most
            distant 0.01 %.
        largest_distance: the largest ``Quantized.distance``. If the results are farther away, the layers that change
            them most stay in floats.
        target: the runtime, as for ``export``; None is that of the export.

    Raises:
        ArgumentError: an argument is not valid, the inputs do not fit, a value is not finite, the program has no layer
            that can be quantized, or no layer can be quantized within the distance.
    """
    _check(program, precision, ranges, largest_distance)
    refuse_fallback(program.model)
    runtime = _target(program, target)
    if precision in CACHES:
        return _with_cache(program, calibration, precision, largest_distance)
    inputs = _bound(program, calibration)
    with TemporaryDirectory() as folder:
        tool = QuantizationTool(program.model, Path(folder), form_of(precision, runtime))
        layers = tool.layers()
        expected = _finite_results(program.model, inputs, tool.activations())
        tool.observe(inputs[_COMPARED:] if len(inputs) >= 2 * _COMPARED else inputs, ranges, layers)
        layers = tool.varying(layers)

        def quantized(chosen: Collection[str]) -> tuple[ir.Model, float]:
            model = tool.quantized(chosen)
            return model, tool.distance(model, inputs, expected)

        chosen = tuple(layers)
        model, distance = quantized(chosen)
        if distance > largest_distance:
            chosen = _within(chosen, lambda names: quantized(names)[1], largest_distance)
            model, distance = quantized(chosen)
    kept = tuple(layers[name] for name in layers if name not in chosen)
    return Quantized(_with_model(program, model), (*kept, *tool.unfit), distance)


def _check(program: Any, precision: Any, ranges: Any, largest_distance: Any) -> None:
    if not isinstance(program, ONNXProgram):
        raise ArgumentError(f"program must be what fx_onnx.export returns, not {shown(program)}.")
    for parameter, value, known in (("precision", precision, {**DTYPES, **CACHES}), ("ranges", ranges, RANGES)):
        if not isinstance(value, str) or value not in known:
            hint = did_you_mean(value, known) or "."
            raise ArgumentError(f"The {parameter} {shown(value)} is not one of {', '.join(known)}{hint}")
    check_tolerance("largest_distance", largest_distance)
    if precision in CACHES and ranges != "minmax":
        raise ArgumentError(f"The precision {precision} has ranges of all values; leave out ranges={ranges!r}.")
    opset, first = program.model.graph.opset_imports.get("", 0), 21 if precision in ("a16w8", "a16w4") else 13
    if opset < first:
        raise ArgumentError(
            f"The precision {precision} needs opset {first} or above, not {opset}; export with opset_version={first}.",
            id=MessageId.OPSET_VERSION,
        )
    if program.model.functions:
        raise ArgumentError("quantize() does not look into local functions; export without them.")


def _target(program: ONNXProgram, target: str | Target | None) -> Target:
    """Returns the runtime that a program is for.

    Raises:
        ArgumentError: the program was exported for another one than is given.
    """
    exported = program.export_facts.target
    wanted = (exported or TARGET) if target is None else find_target(target)
    if exported is not None and exported != wanted:
        raise ArgumentError(
            f"The program was exported for {exported.name}, not for {wanted.name}; export it with "
            f"target={wanted.name!r}.",
            id=MessageId.TARGET,
        )
    return wanted


def _with_cache(program: ONNXProgram, calibration: Any, precision: str, largest_distance: float) -> Quantized:
    """Returns a program with a cache of integers.

    Raises:
        ArgumentError: a text does not fit, or the results are too far away. All layers have a cache of one dtype.
    """
    texts = check_inputs("calibration", calibration, "texts, such as a list")
    model, distance = quantized_cache(program.model, texts, precision, _COMPARED)
    if not distance <= largest_distance:
        raise ArgumentError(
            f"The results with precision={precision!r} are {distance:.2g} away, above largest_distance="
            f"{largest_distance:g}; give a larger one, or keep the cache in floats.",
            id=MessageId.COMMAND_OPTION,
        )
    return Quantized(_with_model(program, model), (), distance)


def _bound(program: ONNXProgram, calibration: Any) -> list[Inputs]:
    """Returns the calibration inputs by the names of the graph inputs.

    Raises:
        ArgumentError: there are none, or one does not fit or has NaN.
    """
    inputs: list[Inputs] = []
    for number, given in enumerate(check_inputs("calibration", calibration, "inputs, such as a list")):
        args, kwargs = ((), dict(given)) if isinstance(given, Mapping) else (given, {})
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        try:
            bound = bind(program.model.graph, program.exported_program, args, kwargs)
        except ArgumentError as error:
            raise ArgumentError(f"calibration[{number}] does not fit: {error.message}", id=error.id) from error
        wrong = [name for name, value in bound.items() if value.is_floating_point() and bool(value.isnan().any())]
        if wrong:
            raise ArgumentError(f"calibration[{number}] has NaN in the input {wrong[0]}; leave it out.")
        inputs.append(bound)
    return inputs


def _finite_results(
    model: ir.Model, inputs: Sequence[Inputs], activations: Collection[str]
) -> list[tuple[Tensor, ...]]:
    """Returns the results of the program in floats for the first inputs. The runtime's observer passes over NaN.

    Raises:
        ArgumentError: no result is a float, or a result or an activation is not finite.
    """
    watched, results = model.clone(), []
    outputs = watched.graph.outputs
    names, count = [value.name for value in outputs], len(outputs)
    outputs.extend(
        value
        for node in watched.graph
        for value in node.outputs
        if value.name in activations and value.name not in names
    )
    if not any(value.dtype is not None and value.dtype.is_floating_point() for value in outputs[:count]):
        raise ArgumentError("No result of the program is a float, so it cannot tell how far it changes.")
    empty = set(activations)
    with LoadedModel(watched) as loaded:
        for number, feed in enumerate(inputs):
            values = loaded.run(feed)
            for value, tensor in zip(outputs, values, strict=True):
                if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                    raise ArgumentError(f"{value.name} is not finite for calibration[{number}]; leave that out.")
                if tensor.numel():
                    empty.discard(str(value.name))
            empty -= {name for name, tensor in feed.items() if tensor.numel()}
            results += [values[:count]] if number < _COMPARED else []
    if empty:
        raise ArgumentError(f"{min(empty)} is empty for all calibration inputs; give larger ones.")
    return results


def _within(layers: Sequence[str], distance: Callable[[Collection[str]], float], largest: float) -> tuple[str, ...]:
    """Returns as many layers as can be quantized within a distance, without those that alone cause the largest ones.

    Raises:
        ArgumentError: there is none.
    """
    alone = {name: distance([name]) for name in layers}
    order = sorted(layers, key=lambda name: -alone[name])
    counts = range(1, len(order))
    first = bisect_left(counts, True, key=lambda count: distance(order[count:]) <= largest)
    if first == len(counts):
        raise ArgumentError(
            f"No layer can be quantized within the distance {largest:g}: the least one alone is "
            f"{min(alone.values()):.2g} away; give a larger largest_distance, or more calibration inputs.",
            id=MessageId.COMMAND_OPTION,
        )
    return tuple(order[counts[first] :])


def _with_model(program: ONNXProgram, model: ir.Model) -> ONNXProgram:
    """Returns a program with another model and the facts of the export."""
    model.producer_name, model.producer_version = program.model.producer_name, program.model.producer_version
    model.metadata_props.clear()
    model.metadata_props.update(program.model.metadata_props)
    new = ONNXProgram(model, program.exported_program)
    new.dims, new.export_facts = program.dims, program.export_facts
    new.findings, new.timings = [*program.findings], {**program.timings}
    return new
