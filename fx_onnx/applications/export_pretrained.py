"""Exports a folder of ``save_pretrained`` to the folder that an application loads."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fx_onnx.applications.adapters import Adapter, adapted, make_optional, read_adapter, write_adapter
from fx_onnx.applications.folder_files import complete_tokenizer, copy_files, replaced
from fx_onnx.applications.genai.images import FAMILIES, images_and_text, take_any_rank
from fx_onnx.applications.genai.images_config import write_images_config
from fx_onnx.applications.genai.speech_config import write_speech_config
from fx_onnx.applications.inputs import input_names, parts_of, processed
from fx_onnx.applications.layouts import LAYOUTS, PRECISIONS, Layout, choose
from fx_onnx.applications.parts import Part, decoder_of_tokens
from fx_onnx.applications.precisions import Converted, convert, quantizes
from fx_onnx.applications.shared_weights import share_weights
from fx_onnx.applications.sherpa import write_tokens
from fx_onnx.applications.sherpa_moonshine import moonshine_parts
from fx_onnx.applications.sherpa_whisper import whisper_parts
from fx_onnx.applications.source import Source, evaluates_source, is_packed, read_source
from fx_onnx.applications.streams import check_stream, describe_states
from fx_onnx.applications.tasks import MODULES
from fx_onnx.export import export
from fx_onnx.extension_points.rooms import find
from fx_onnx.files.destination import check_folder
from fx_onnx.messages.arguments import (
    check_flag,
    check_inputs,
    check_mapping,
    refuses_unknown_keywords,
    shown,
)
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import collect_findings, warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.progress import progress_of_part
from fx_onnx.requests.pytrees import register
from fx_onnx.targets.known_targets import find_target
from fx_onnx.torch_internals.torch_private import pytree
from fx_onnx.translation.translate import PRODUCER

if TYPE_CHECKING:
    from fx_onnx.program.onnx_program import ONNXProgram

__all__ = ["ExportedFile", "export_pretrained"]


@dataclass(frozen=True)
class ExportedFile:
    """One ONNX file of the folder.

    Attributes:
        name: relative to the folder.
        size: the bytes of the file and its data file.
        difference: the largest difference from the module's results in this precision; None if they were not compared.
        precision: a name of a precision.
        kept: the modules that keep float32, or weights that are not quantized.
        distance: the largest difference between the module's results in this precision and in float32, relative to the
            largest result, and that which a quantized cache adds.
    """

    name: str
    size: int
    difference: float | None
    precision: str
    kept: tuple[str, ...]
    distance: float


@dataclass(frozen=True)
class _Form:
    """What the files of an export have in common."""

    layout: Layout
    target: str | None
    opset_version: int | None
    verify: bool
    adapters: tuple[Adapter, ...]
    exporting: Mapping[str, Any]
    saving: Mapping[str, Any]
    calibration: tuple[Mapping[str, Tensor], ...] = ()
    cache: str | None = None


@refuses_unknown_keywords
@evaluates_source
def export_pretrained(
    source: Any,
    output: str | os.PathLike[str],
    *,
    task: str | None = None,
    layout: str = "optimum",
    precision: str | Sequence[str] = "fp32",
    target: str | None = None,
    opset_version: int | None = None,
    verify: bool = True,
    processor: Any = None,
    inputs: Mapping[str, Any] | None = None,
    calibration: Iterable[Mapping[str, Tensor]] | None = None,
    cache: str | None = None,
    adapters: Mapping[str, str | os.PathLike[str]] | None = None,
    trust_remote_code: bool = False,
    optimize: bool | Collection[str] = True,
    report: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    external_data: bool | None = None,
    metadata: str = "full",
) -> tuple[ExportedFile, ...]:
    """Exports a model of transformers, or a pipeline of diffusers, to the folder that an application loads.

    The folder is complete or, if the export fails, as before. Nothing is downloaded.

    Args:
        source: a folder that ``save_pretrained`` wrote, a model of transformers, or a pipeline of transformers or
            diffusers; an ``nn.Module`` for the task ``stream``.
        output: the folder to write. An older one is replaced, with all files in it, if fx_onnx wrote its ONNX files.
        task: such as ``text-generation``; None takes the task of the model's class, which ``config.json`` names.
        layout: ``optimum``, which is the default, ``optimum-two-decoders``, ``sentence-transformers``,
            ``transformers.js``, ``diffusers``, ``model-package``, ``genai`` or ``sherpa-onnx``.
        precision: ``fp32``, ``fp16``, ``int8``, ``q4``, ``q4f16``, ``int8-static``, ``a16w8`` or ``a16w4``; several if
            the layout names their files.
        target: as for ``export``; None is the runtime of the layout.
        opset_version: as for ``export``.
        verify: compares the results of each part with the module's before the folder gets its name. A part that draws
            random numbers, or selects among equal elements, is not compared, which a warning tells.
        processor: the tokenizer, image processor, feature extractor or processor of the model; None takes that of the
            source. It makes the example inputs, and its files are written if the source is no folder.
        inputs: real inputs by the name of the forward's parameter, instead of those of the processor. An input that is
            neither in them nor made by the processor is derived from the config. For the task ``stream``, they are a
            chunk and the first states, which may be lists, tuples, dicts or caches of tensors.
        calibration: for ``int8-static``, ``a16w8`` and ``a16w4``, inputs like those of the application, about 100, each
            a dict of all inputs of the model by name. For ``cache``, texts: dicts with ``input_ids``.
        cache: ``int8`` or ``int4``, in the layout ``genai``: the dtype of the keys and values that the runtime keeps;
            None is that of the results.
        adapters: name → the folder of a LoRA adapter of peft. Its weights become optional inputs, which the file
            ``adapters/NAME/MODEL.onnx_adapter`` of ONNX Runtime has.
        trust_remote_code: whether the code in the source folder may run.
        optimize, report, artifacts_dir, external_data, metadata: as for ``export``, for each file. None as
            ``external_data`` leaves it to the layout.

    Returns:
        The ONNX files.

    Raises:
        ArgumentError: an argument is not valid, or the source has no model for the task.
        VerificationError: the results of a part differ.
        OnnxExporterError: the export of a part fails.
    """
    check_folder("The folder", output)
    _check_types({"verify": verify, "trust_remote_code": trust_remote_code}, adapters)
    _check_tensors(inputs, trees=task in list(MODULES))
    chosen, precisions = choose(layout, precision, opset_version)
    calibrating = _calibration_inputs(calibration, precisions, cache, chosen)
    _check_place(source, Path(output), chosen, layout)
    loaded = tuple(read_adapter(name, folder) for name, folder in (adapters or {}).items())
    pretrained = read_source(source, task, processor, trust_remote_code)
    parts = _parts(pretrained, chosen, {**processed(pretrained.processors), **(inputs or {})})
    _check_parts(parts, chosen, layout, pretrained.task, cache)
    _check_inputs(parts, inputs or {}, *calibrating)
    _check_layers(parts, precisions, pretrained.model)
    is_shared = chosen.shares_weights and len(parts) * len(precisions) > 1
    exporting = {"optimize": optimize, "report": report, "artifacts_dir": artifacts_dir}
    saving = {"external_data": _external_data(external_data, chosen, layout, is_shared), "metadata": metadata}
    with replaced(Path(output)) as new, adapted(pretrained.model, loaded) as extend:
        copy_files(pretrained, new)
        complete_tokenizer(pretrained, new, chosen, takes_tokens=any("input_ids" in part.kwargs for part in parts))
        _write_speech_config(pretrained, parts, new, chosen)
        opset = opset_version or _opset(target or chosen.target, 21 if is_packed(pretrained.model) else None)
        form = _Form(chosen, target or chosen.target, opset, verify, loaded, exporting, saving, calibrating, cache)
        files = tuple(_written([extend(part) for part in parts], precisions, pretrained.model, new, form))
        _write_images_config(pretrained, parts, new)
        if is_shared:
            share_weights([new / file.name for file in files])
        if chosen.write_index is not None:
            chosen.write_index(new, [file.name for file in files])
        return tuple(replace(file, size=_size(new / file.name)) for file in files)


def _opset(target: str | None, first: int | None) -> int | None:
    """Returns the opset of a target, but not below the first one that has the weights; None if any will do."""
    return first if first is None or target is None else max(first, find_target(target).opset)


def _check_place(source: Any, output: Path, layout: Layout, name: str) -> None:
    """Raises an ArgumentError if the source lacks a file that the layout needs, or the folder cannot be replaced."""
    if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
        folder = Path(source).resolve()
        missing = [file for file in layout.required if not (folder / file).is_file()]
        if missing:
            raise ArgumentError(
                f"{source} has no {missing[0]}, without which the layout {name} cannot be loaded.",
                id=MessageId.MODEL_SOURCE,
            )
        if folder.is_relative_to(output.resolve()):
            raise ArgumentError(
                f"The folder {output} has the source in it; write to another folder.", id=MessageId.FILE
            )
    programs = [*output.rglob("*.onnx")]
    if output.is_dir() and any(output.iterdir()) and not (programs and all(map(_is_own, programs))):
        raise ArgumentError(
            f"The folder {output} has files and is no export of fx_onnx, so it is not replaced; write to another one.",
            id=MessageId.FILE,
        )


def _is_own(file: Path) -> bool:
    """Returns whether fx_onnx wrote a model, whose first bytes have the name of its producer."""
    with file.open("rb") as model:
        return PRODUCER.encode() in model.read(64)


def _parts(source: Source, layout: Layout, given: Mapping[str, Tensor]) -> list[Part]:
    """Returns the parts of a model in the form of a layout."""
    model = source.model
    if layout.is_genai and getattr(model, "can_generate", bool)() and not model.config.is_encoder_decoder:
        kind = model.config.model_type
        encoders = [name for name in ("vision_config", "audio_config") if getattr(model.config, name, None) is not None]
        if encoders and kind in FAMILIES and source.task != "text-generation":
            return images_and_text(model)
        if encoders:
            advice = "the task image-text-to-text exports its images too"
            if kind not in FAMILIES:
                advice = f"the layout has images of {', '.join(FAMILIES)}"
            warn(f"The folder has the decoder of texts of {kind} only; {advice}.", MessageId.GENAI_FOLDER)
        return decoder_of_tokens(model)
    if layout.form == "streams" and source.task not in MODULES:
        if (kind := model.config.model_type) not in _OF_SHERPA:
            raise ArgumentError(
                f"sherpa-onnx loads {', '.join(_OF_SHERPA)} and modules of the task stream, not {kind}.",
                id=MessageId.MODEL_SOURCE,
            )
        return _OF_SHERPA[kind](model, source.row.outputs, given)
    parts = source.row.parts(model, source.row.outputs, given)
    return [part for part in parts if not part.forms or layout.form in part.forms]


_OF_SHERPA = {"whisper": whisper_parts, "moonshine": moonshine_parts}
"""The type of a model of transformers → what makes its parts for sherpa-onnx."""


def _external_data(wanted: bool | None, layout: Layout, name: str, is_shared: bool) -> bool | None:
    """Returns whether the weights are in a second file; None leaves it to their size.

    Raises:
        ArgumentError: the layout decides it, and otherwise than the caller.
    """
    own = is_shared or layout.external_data
    if wanted not in (None, own) and (is_shared or own is False):
        raise ArgumentError(
            f"The layout {name} decides where these weights are; leave out external_data={wanted}.",
            id=MessageId.COMMAND_OPTION,
        )
    return own if wanted is None else wanted


def _check_parts(parts: list[Part], layout: Layout, name: str, task: str, cache: str | None) -> None:
    missing = [part.name for part in parts if part.name not in layout.files]
    if missing:
        fitting = [other for other, row in LAYOUTS.items() if all(part.name in row.files for part in parts)]
        raise ArgumentError(
            f"The layout {name} has no file for the {missing[0]} of {task}, which has {', '.join(fitting)}.",
            id=MessageId.COMMAND_OPTION,
        )
    if cache is not None and all(part.name != "decoder" for part in parts):
        raise ArgumentError(f"cache={cache!r} is for decoders; leave it out for {task}.", id=MessageId.COMMAND_OPTION)


def _check_types(flags: Mapping[str, Any], adapters: Any) -> None:
    for name, flag in flags.items():
        check_flag(name, flag)
    check_mapping("adapters", adapters, "folders by the names of adapters")


def _check_tensors(inputs: Any, *, trees: bool = False) -> None:
    check_mapping("inputs", inputs, "tensors by the names of parameters")
    register(dict(inputs or {}))
    for name, value in (inputs or {}).items():
        leaves = pytree.tree_leaves(value) if trees else [value]
        if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
            raise ArgumentError(f"The input {shown(name)} must be a tensor, not {shown(value)}.")


def _check_cache(cache: Any, precisions: Sequence[str], layout: Layout) -> None:
    wrong: Any = cache not in ("int8", "int4") and f"must be int8, int4 or None, not {shown(cache)}"
    wrong = wrong or (not layout.is_genai and "is for the layout genai; leave it out")
    half = next((precision for precision in precisions if PRECISIONS[precision].half), None)
    wrong = wrong or (half and f"does not go with {half}, in which attention reads a cast of the cache")
    if cache is not None and wrong:
        raise ArgumentError(f"cache {wrong}.", id=MessageId.COMMAND_OPTION)


def _calibration_inputs(
    calibration: Any, precisions: Sequence[str], cache: str | None, layout: Layout
) -> tuple[Mapping[str, Tensor], ...]:
    """Returns the calibration inputs, which may come from a generator.

    Raises:
        ArgumentError: they are missing or not used, or one is no dict of tensors.
    """
    _check_cache(cache, precisions, layout)
    static = [f"precision {name}" for name in precisions if PRECISIONS[name].is_static]
    static += [f"cache {cache}"] if cache else []
    if bool(static) != (calibration is not None):
        raise ArgumentError(
            f"The {static[0]} needs calibration=, an iterable of inputs by name."
            if static
            else "calibration= is for cache= and for the precisions int8-static, a16w8 and a16w4; leave it out.",
            id=MessageId.COMMAND_OPTION,
        )
    if calibration is None:
        return ()
    inputs = check_inputs("calibration", calibration, "dicts of inputs")
    for number, given in enumerate(inputs):
        check_mapping(f"calibration[{number}]", given, "tensors by the names of inputs", optional=False)
        _check_tensors(given)
    return inputs


def _check_inputs(parts: list[Part], *inputs: Mapping[str, Tensor]) -> None:
    taken = dict.fromkeys(name for part in parts for name in part.kwargs)
    unknown = [name for given in inputs for name in given if name not in taken]
    if unknown:
        raise ArgumentError(
            f"No part of the model takes the input {shown(unknown[0])}; its inputs are {', '.join(taken)}.",
            id=MessageId.CONFLICTING_ARGUMENTS,
        )


def _check_layers(parts: list[Part], precisions: Sequence[str], model: Any) -> None:
    for precision in precisions:
        row = PRECISIONS[precision]
        if (row.half or row.config is not None or row.is_static) and is_packed(model):
            raise ArgumentError(
                f"The precision {precision} does not fit the model, whose weights are packed by its checkpoint; choose "
                "fp32, which keeps them packed.",
                id=MessageId.COMMAND_OPTION,
            )
        if row.config is not None and not any(quantizes(part.module, precision) for part in parts):
            kind = f"whose inputs are a multiple of {row.block}" if row.block > 1 else "of several inputs"
            raise ArgumentError(
                f"The precision {precision} does not fit the model, because it has no Linear layer {kind}; choose "
                "fp16.",
                id=MessageId.COMMAND_OPTION,
            )


def _written(
    parts: list[Part], precisions: Sequence[str], model: Any, folder: Path, form: _Form
) -> Iterator[ExportedFile]:
    """Yields each file after it was written."""
    described = form.layout.metadata(parts) if form.layout.metadata is not None else {}
    parts = [replace(part, metadata={**part.metadata, **described.get(part.name, {})}) for part in parts]
    pairs = [(precision, part) for precision in precisions for part in parts]
    for number, (precision, part) in enumerate(pairs, 1):
        count = f" ({number} of {len(pairs)})" if len(pairs) > 1 else ""
        with progress_of_part(f"{part.name}{count}"):
            yield _write(part, model, folder, form, precision)


def _write(part: Part, model: Any, folder: Path, form: _Form, precision: str) -> ExportedFile:
    """Exports a part in a precision, compares its results, and writes it."""
    layout = form.layout
    converted = convert(part.module, part.kwargs, precision)
    program = _exported(replace(part, module=converted.module), form, precision)
    if PRECISIONS[precision].is_static:
        program, converted = _quantized(program, part, form, precision)
        # The example may have values out of the ranges.
        part = replace(part, kwargs={name: form.calibration[0][name] for name in part.kwargs})
    difference = _verified(program, part, converted) if form.verify else None
    if part.initial:
        program.model.metadata_props.update(describe_states(program, part))
        if form.verify:
            check_stream(program, replace(part, module=converted.module), converted.rtol)
    program.model.metadata_props.update(part.metadata)
    make_optional(program.model, part)
    if form.cache is not None and part.name == "decoder":
        result = find("fx_onnx", "quantize")(program, form.calibration, precision=f"{form.cache}-cache")
        program, converted = result.program, replace(converted, distance=converted.distance + result.distance)
    if layout.is_genai and part.name == "embedding":
        take_any_rank(program.model)
    file = folder / f"{layout.files[part.name]}{layout.suffixes[precision]}.onnx"
    for adapter in form.adapters:
        write_adapter(
            adapter, part, folder / "adapters" / adapter.name / f"{Path(layout.files[part.name]).name}.onnx_adapter"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    if layout.is_genai and part.name == "decoder":
        program.save_genai(file.parent, config=model.config, generation_config=model.generation_config, **form.saving)
    else:
        program.save(file, **form.saving)
    return ExportedFile(
        file.relative_to(folder).as_posix(), _size(file), difference, precision, converted.kept, converted.distance
    )


def _quantized(program: ONNXProgram, part: Part, form: _Form, precision: str) -> tuple[ONNXProgram, Converted]:
    """Returns the program on integers, and how far it is from the module.

    Raises:
        ArgumentError: a calibration input lacks an input of the part.
    """
    for number, given in enumerate(form.calibration):
        missing = [name for name in part.kwargs if name not in given]
        if missing:
            raise ArgumentError(
                f"calibration[{number}] lacks {missing[0]}, an input of the {part.name}; give all inputs, or export "
                "the part with fx_onnx.export and call fx_onnx.quantize.",
                id=MessageId.COMMAND_OPTION,
            )
    inputs = [{name: given[name] for name in part.kwargs} for given in form.calibration]
    result = find("fx_onnx", "quantize")(program, inputs, precision=precision, target=form.target)
    return result.program, Converted(part.module, result.kept, result.distance, max(1e-2, 2 * result.distance))


def _exported(part: Part, form: _Form, precision: str) -> ONNXProgram:
    """Returns the program of a part, captured with its larger images if that program takes the example too."""
    layout = form.layout

    def exported(kwargs: dict[str, Any]) -> ONNXProgram:
        return export(
            part.module,
            kwargs=kwargs,
            dynamic_shapes=_renamed(part.dynamic_shapes, layout),
            input_names=[layout.inputs.get(name, name) for name in input_names(kwargs)],
            output_names=part.outputs,
            target=form.target,
            opset_version=form.opset_version or _opset(form.target, PRECISIONS[precision].opset_version),
            **form.exporting,
        )

    if part.larger:
        with collect_findings(as_warning=False) as findings:
            program = exported({**part.kwargs, **part.larger})
        if _takes(program, part.kwargs):
            with collect_findings():
                for finding in findings:
                    warn(finding.text, finding.id)
            return program
    return exported(part.kwargs)


def _takes(program: ONNXProgram, kwargs: Mapping[str, Any]) -> bool:
    """Returns whether the sizes of tensors are among those for which a program is right."""
    sizes: dict[Any, int] = {}
    for value, tensor in zip(program.model.graph.inputs, pytree.tree_leaves(kwargs), strict=True):
        for dim, size in zip(value.shape or (), tensor.shape, strict=True):
            if size != (dim if isinstance(dim, int) else sizes.setdefault(dim.value, size)):
                return False
    return all(condition.holds(sizes) for condition in program.dims.conditions)


_NOT_COMPARED = {"random": "draws random numbers", "ties": "selects among equal elements"}


def _verified(program: ONNXProgram, part: Part, converted: Converted) -> float | None:
    """Returns the largest difference from the module's results; None, with a warning, if these may differ."""
    compare = find("stages", "verify")
    result = compare(program, (), part.kwargs, module=converted.module, rtol=converted.rtol)
    reason = _NOT_COMPARED.get(result.cause.kind) if result.cause is not None else None
    if reason:
        warn(f"{part.name} {reason}, so its results were not compared with PyTorch's.", MessageId.RESULTS_DIFFER)
        return None
    result.check()
    return max((float(output.max_abs) for output in result.outputs), default=0.0)


def _write_speech_config(source: Source, parts: Sequence[Part], folder: Path, layout: Layout) -> None:
    if layout.form == "streams" and source.task not in MODULES:
        write_tokens(folder, next((part for part in parts_of(source.processors) if hasattr(part, "get_vocab")), None))
    if all(part.name != "encoder_with_cross" for part in parts):
        return
    model, extractors = source.model, (part for part in parts_of(source.processors) if hasattr(part, "chunk_length"))
    configs = {"config": model.config, "generation_config": model.generation_config}
    write_speech_config(folder, **configs, extractor=next(extractors, None))


def _write_images_config(source: Source, parts: Sequence[Part], folder: Path) -> None:
    if all(part.name != "vision" for part in parts):
        return
    processors = (part for part in parts_of(source.processors) if hasattr(part, "image_mean"))
    extractors = (part for part in parts_of(source.processors) if hasattr(part, "mel_floor"))
    found = {"processor": next(processors, None), "extractor": next(extractors, None)}
    write_images_config(folder, config=source.model.config, parts=parts, **found)


def _size(file: Path) -> int:
    return sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))


def _renamed(shapes: Any, layout: Layout) -> Any:
    """Returns dynamic shapes with the layout's names of dims."""
    return pytree.tree_map(lambda dim: layout.dims.get(dim, dim) if isinstance(dim, str) else dim, shapes)
