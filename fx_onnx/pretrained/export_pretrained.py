"""Exports a folder of ``save_pretrained`` to the folder that an application loads."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_onnx.core.arguments import check_flag, check_path, did_you_mean, refuses_unknown_keywords, shown
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId
from fx_onnx.core.torch_private import pytree
from fx_onnx.export import export
from fx_onnx.pretrained.layouts import LAYOUTS, Layout
from fx_onnx.pretrained.precisions import PRECISIONS, convert
from fx_onnx.pretrained.source import find_task, load_config, load_model
from fx_onnx.pretrained.tasks import TASKS, Part
from fx_onnx.program.destination import check_folder

__all__ = ["ExportedFile", "export_pretrained"]

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".index.json", ".data")


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
            largest result.
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


@refuses_unknown_keywords
def export_pretrained(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    task: str | None = None,
    layout: str = "optimum",
    precision: str | Sequence[str] = "fp32",
    target: str | None = None,
    opset_version: int | None = None,
    verify: bool = True,
) -> tuple[ExportedFile, ...]:
    """Exports a model of transformers to the folder that an application loads.

    The folder is complete or, if the export fails, as before. Nothing is downloaded, and no code of the source runs.

    Args:
        source: a folder that ``save_pretrained`` wrote.
        output: the folder to write. An older one is replaced if an export wrote it.
        task: such as ``text-generation``; None takes the task of the architecture that ``config.json`` names.
        layout: ``optimum``, ``sentence-transformers``, ``transformers.js`` or ``genai``.
        precision: ``fp32``, ``fp16``, ``int8``, ``q4`` or ``q4f16``; several of them if the layout names their files.
        target: as for ``export``; None is the runtime of the layout.
        opset_version: as for ``export``.
        verify: compares the results of each part with the module's before the folder gets its name.

    Returns:
        The ONNX files.

    Raises:
        ArgumentError: an argument is not valid, or the source has no model for the task.
        VerificationError: the results of a part differ.
        OnnxExporterError: the export of a part fails.
    """
    check_path("source", source)
    check_folder("The folder", output)
    check_flag("verify", verify)
    chosen = LAYOUTS[_checked("layout", layout, LAYOUTS)]
    precisions = _checked_precisions(precision, chosen, layout, opset_version)
    folder, place = Path(source), Path(output)
    config = load_config(folder)
    name = find_task(config) if task is None else _checked("task", task, TASKS)
    _check_source(folder, place, chosen, layout)
    model = load_model(folder, config, name)
    parts = TASKS[name].parts(model, TASKS[name].outputs)
    _check_parts(parts, chosen, layout, name)
    with _replaced(place) as new:
        _copy_files(folder, new)
        form = _Form(chosen, target or chosen.target, opset_version, verify)
        return tuple(_write(part, model, new, form, each) for each in precisions for part in parts)


def _checked(parameter: str, value: str, known: Collection[str]) -> str:
    if value not in known:
        hint = did_you_mean(value, known) or "."
        raise ArgumentError(
            f"The {parameter} {shown(value)} is not one of {', '.join(known)}{hint}", id=MessageId.COMMAND_OPTION
        )
    return value


def _checked_precisions(
    given: str | Sequence[str], layout: Layout, name: str, opset_version: int | None
) -> tuple[str, ...]:
    found = tuple(dict.fromkeys([given] if isinstance(given, str) else given))
    for each in found:
        first = PRECISIONS[_checked("precision", each, layout.suffixes)].opset_version
        if first is not None and opset_version is not None and opset_version < first:
            raise ArgumentError(
                f"The precision {each} needs opset {first} or above, not {opset_version}; leave out the opset.",
                id=MessageId.OPSET_VERSION,
            )
    if len({layout.suffixes[each] for each in found}) < max(len(found), 1):
        raise ArgumentError(
            f"A folder of the layout {name} has one precision, not {len(found)}; write one folder for each.",
            id=MessageId.COMMAND_OPTION,
        )
    return found


def _check_source(source: Path, output: Path, layout: Layout, name: str) -> None:
    missing = [each for each in layout.required if not (source / each).is_file()]
    if missing:
        raise ArgumentError(
            f"{source} has no {missing[0]}, without which the layout {name} cannot be loaded.",
            id=MessageId.MODEL_SOURCE,
        )
    if source.resolve() == output.resolve() or source.resolve().is_relative_to(output.resolve()):
        raise ArgumentError(f"The folder {output} has the source in it; write to another folder.", id=MessageId.FILE)
    if output.is_dir() and any(output.iterdir()) and not any(output.rglob("*.onnx")):
        raise ArgumentError(
            f"The folder {output} has files, but no ONNX file, so it is not replaced; write to another folder.",
            id=MessageId.FILE,
        )


def _check_parts(parts: list[Part], layout: Layout, name: str, task: str) -> None:
    missing = [part.name for part in parts if part.name not in layout.files]
    if missing:
        fitting = [each for each, row in LAYOUTS.items() if all(part.name in row.files for part in parts)]
        raise ArgumentError(
            f"The layout {name} has no file for the {missing[0]} of {task}; its layouts are {', '.join(fitting)}.",
            id=MessageId.COMMAND_OPTION,
        )


def _write(part: Part, model: Any, folder: Path, form: _Form, precision: str) -> ExportedFile:
    """Exports a part in a precision, compares its results, and writes it."""
    layout, row = form.layout, PRECISIONS[precision]
    converted = convert(part.module, part.kwargs, precision)
    program = export(
        converted.module,
        kwargs=part.kwargs,
        dynamic_shapes=_renamed(part.dynamic_shapes, layout),
        output_names=part.outputs,
        target=form.target,
        opset_version=form.opset_version or row.opset_version,
    )
    difference = None
    if form.verify:
        found = program.verify(rtol=converted.rtol)
        found.check()
        difference = max((float(each.max_abs) for each in found.outputs), default=0.0)
    for value in (*program.model.graph.inputs, *program.model.graph.outputs):
        for old, new in layout.renames.items():
            if value.name is not None and value.name.startswith(old):
                value.name = new + value.name.removeprefix(old)
    file = folder / f"{layout.files[part.name]}{layout.suffixes[precision]}.onnx"
    file.parent.mkdir(parents=True, exist_ok=True)
    if layout.is_genai:
        program.save_genai(file.parent, config=model.config, generation_config=model.generation_config)
    else:
        program.save(file, external_data=layout.external_data)
    size = sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))
    return ExportedFile(
        file.relative_to(folder).as_posix(), size, difference, precision, converted.kept, converted.distance
    )


def _renamed(shapes: Any, layout: Layout) -> Any:
    """Returns dynamic shapes with the layout's names of dims."""
    return pytree.tree_map(lambda dim: layout.dims.get(dim, dim) if isinstance(dim, str) else dim, shapes)


def _copy_files(source: Path, folder: Path) -> None:
    """Copies all files of the source but its weights, as they are."""

    def weights(_: str, names: list[str]) -> set[str]:
        return {name for name in names if name.endswith(_WEIGHTS) or name.startswith(".")}

    shutil.copytree(source, folder, ignore=weights, dirs_exist_ok=True)


@contextmanager
def _replaced(folder: Path) -> Iterator[Path]:
    """Yields a new folder beside a folder, which takes its place at the end. After an error the old one remains.

    Raises:
        ArgumentError: a file cannot be written, for example because the disk is full.
    """
    place = folder.absolute()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name[:40]}.", dir=place.parent) as beside:
            new, old = Path(beside, "new"), Path(beside, "old")
            new.mkdir()
            yield new
            if place.exists():
                place.rename(old)
            try:
                new.rename(place)
            except OSError:
                if old.exists():
                    old.rename(place)
                raise
    except OSError as error:
        raise ArgumentError(
            f"The folder {folder} cannot be written: {error.strerror or error}; the old one is as before.",
            id=MessageId.FILE,
        ) from error
