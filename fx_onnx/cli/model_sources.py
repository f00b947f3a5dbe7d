"""Loads the model that the command ``export`` names: a Python object, an ExportedProgram, or a TorchScript file."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fx_onnx.cli._model_source import ModelSource
from fx_onnx.messages.arguments import did_you_mean
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError, first_line
from fx_onnx.messages.message_ids import MessageId

__all__ = ["load"]


def load(source: str, *, task: str | None = None, with_past: bool = False) -> ModelSource:
    """Loads a model.

    Args:
        source: ``package.module:name``, a ``.pt2`` file of torch.export, a TorchScript file, or ``hf:folder``.
        task: the task of a Hugging Face model.
        with_past: whether a Hugging Face model takes and returns a key-value cache.

    Raises:
        ArgumentError: the source does not exist, or does not give a model.
    """
    if source.startswith("hf:"):
        return _of_hugging_face(Path(source.removeprefix("hf:")), task, with_past)
    if task is not None or with_past:
        raise ArgumentError(
            "--task and --with-past are for Hugging Face models; write the source as hf:FOLDER.",
            id=MessageId.COMMAND_OPTION,
        )
    module, colon, name = source.partition(":")
    if colon and name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        with _failures_of(source):
            value = _import(module, name)
        return _of_object(value, source)
    from fx_onnx.saved_programs.model_files import load_model

    return ModelSource(load_model(source))


def _of_hugging_face(folder: Path, task: str | None, with_past: bool) -> ModelSource:
    """Returns a model that ``save_pretrained`` wrote, without downloads and without running its code."""
    from fx_onnx.applications.source import find_row, load_config, load_model, named_class, reading_folder

    config = load_config(folder, f", and name the folder, as in hf:path/to/{folder.name}.")
    with reading_folder(folder):
        name = named_class(config) if task is None else find_row(config, task, None)[1].auto
    model = load_model(folder, config, name)
    if with_past:
        from fx_onnx.applications.text_generation import takes_padding, text_generation_arguments

        if not model.can_generate():
            raise ArgumentError(
                f"--with-past is for text generation, but {type(model).__name__} generates no text.",
                id=MessageId.MODEL_SOURCE,
            )
        arguments = text_generation_arguments(model, padding=takes_padding(model))
        return ModelSource(model, (), arguments["kwargs"], arguments["dynamic_shapes"])
    from fx_onnx.applications.inputs import constants_of, example_inputs

    (kwargs, shapes), constants = example_inputs(model), constants_of(model)
    return ModelSource(model, (), {**kwargs, **constants}, {**shapes, **dict.fromkeys(constants)})


def _import(module: str, name: str) -> Any:
    """Imports an object; modules in the working directory are found, as with ``python -m``."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            hint = f"; did you mean '{module.removesuffix('.py')}:{name}'?" if module.endswith(".py") else "."
            raise ArgumentError(
                f"There is no module named {error.name!r} in {here} or in this environment{hint}",
                id=MessageId.MODEL_SOURCE,
            ) from None
        raise
    try:
        return getattr(imported, name)
    except AttributeError as error:
        if name not in str(error):
            raise
        hint = did_you_mean(name, (attribute for attribute in vars(imported) if not attribute.startswith("_"))) or "."
        raise ArgumentError(f"The module {module} has no attribute {name!r}{hint}", id=MessageId.MODEL_SOURCE) from None


def _of_object(value: Any, source: str) -> ModelSource:
    """Returns the model of a Module, of a Module class, or of a function that returns a Module and its inputs."""
    import torch

    if isinstance(value, type) or (callable(value) and not isinstance(value, torch.nn.Module)):
        required = [
            parameter.name
            for parameter in inspect.signature(value).parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        if required:
            raise ArgumentError(
                f"{source} needs the argument {required[0]!r}; name a function without arguments.",
                id=MessageId.MODEL_SOURCE,
            )
        with _failures_of(source):
            value = value()
    args, kwargs = (), {}
    if isinstance(value, tuple) and len(value) in (2, 3):
        value, args, kwargs = (*value, {}) if len(value) == 2 else value
    if not isinstance(value, (torch.nn.Module, torch.export.ExportedProgram)):
        raise ArgumentError(
            f"{source} gives an object of the type {type(value).__name__}; it must give a Module, or a tuple "
            "(Module, args) or (Module, args, kwargs).",
            id=MessageId.MODEL_SOURCE,
        )
    return ModelSource(value, tuple(args) if isinstance(args, (tuple, list)) else (args,), dict(kwargs))


@contextmanager
def _failures_of(source: str) -> Iterator[None]:
    """Turns an error of the user's code into an OnnxExporterError, in one sentence with the line of the code."""
    try:
        yield
    except OnnxExporterError:
        raise
    except Exception as error:
        from fx_onnx.messages.source_lines import innermost_line

        line = innermost_line(traceback.extract_tb(error.__traceback__))
        raise OnnxExporterError(f"{source} raises {first_line(error)} {line}".rstrip()) from error
