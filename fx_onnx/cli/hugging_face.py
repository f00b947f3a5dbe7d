"""Loads a model of transformers from a local folder, with example inputs and dynamic dims for its task."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fx_onnx.cli._model_source import ModelSource
from fx_onnx.core.arguments import did_you_mean
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId
from fx_onnx.pretrained.source import load_config, load_weights, reading

if TYPE_CHECKING:
    import torch

__all__ = ["TASKS", "load"]

TASKS = {
    "feature-extraction": ("AutoModel", "MODEL_MAPPING"),
    "fill-mask": ("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING"),
    "image-classification": ("AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING"),
    "image-feature-extraction": ("AutoModel", "MODEL_FOR_IMAGE_MAPPING"),
    "question-answering": ("AutoModelForQuestionAnswering", "MODEL_FOR_QUESTION_ANSWERING_MAPPING"),
    "text-classification": ("AutoModelForSequenceClassification", "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING"),
    "text-generation": ("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING"),
    "token-classification": ("AutoModelForTokenClassification", "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING"),
}
"""Task → the class of transformers that builds the model, and the mapping of the configs that it takes."""

_BATCH, _SEQUENCE = 2, 6
"""The sizes of the example; both are dynamic."""


def load(folder: Path, task: str | None, *, with_past: bool, full_cache: bool = False) -> ModelSource:
    """Loads the model of a folder that ``save_pretrained`` wrote, without downloads and without running its code.

    Args:
        folder: has ``config.json`` and the weights.
        task: a key of ``TASKS``. None takes the class that ``config.json`` names.
        with_past: whether the model takes and returns a key-value cache; for text generation only.
        full_cache: whether layers with a sliding window keep all tokens in that cache.

    Raises:
        ArgumentError: transformers is not installed, the folder has no model for the task, or the task is unknown.
    """
    if task is not None and task not in TASKS:
        raise ArgumentError(
            f"The task {task!r} is not one of {', '.join(TASKS)}{did_you_mean(task, TASKS) or '.'}",
            id=MessageId.COMMAND_OPTION,
        )
    config = load_config(folder, f", and name the folder, as in hf:path/to/{folder.name}.")
    import transformers

    with reading(folder):
        _check_task(transformers, config, task)
        model = load_weights(_model_class(transformers, config, task), folder, config)
        source = None if with_past else _source(model)
    if source is None:
        from fx_onnx.capture.text_generation import takes_padding, text_generation_arguments

        if not model.can_generate():
            raise ArgumentError(
                f"--with-past is for text generation, but {type(model).__name__} generates no text.",
                id=MessageId.MODEL_SOURCE,
            )
        arguments = text_generation_arguments(model, padding=takes_padding(model), full_cache=full_cache)
        return ModelSource(model, (), arguments["kwargs"], arguments["dynamic_shapes"])
    return source


def _check_task(transformers: Any, config: Any, task: str | None) -> None:
    """Raises an ArgumentError if transformers has no model for the task with this config; it names those that it has.

    AutoModel builds a model for each config, so its tasks are not checked.
    """
    if task is None or TASKS[task][0] == "AutoModel":
        return
    fitting = [each for each, (_, mapping) in TASKS.items() if type(config) in getattr(transformers, mapping, ())]
    if fitting and task not in fitting:
        raise ArgumentError(
            f"transformers has no {config.model_type} model for the task {task!r}; its tasks are {', '.join(fitting)}.",
            id=MessageId.MODEL_SOURCE,
        )


def _model_class(transformers: Any, config: Any, task: str | None) -> Any:
    if task is not None:
        return getattr(transformers, TASKS[task][0])
    names = config.architectures or ()
    found = getattr(transformers, names[0], None) if names else None
    if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
        raise ArgumentError(
            f"config.json names no class of transformers; add --task, one of {', '.join(TASKS)}.",
            id=MessageId.MODEL_SOURCE,
        )
    return found


def _source(model: Any) -> ModelSource:
    """Returns the model with the inputs that its forward takes: images, or tokens with their mask."""
    import torch

    parameters = inspect.signature(model.forward).parameters
    config = model.config
    if model.main_input_name == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        pixels = torch.randn(_BATCH, getattr(config, "num_channels", 3), height, width)
        return ModelSource(model, (), {"pixel_values": pixels}, {"pixel_values": {0: "batch"}})
    if model.main_input_name != "input_ids" or "decoder_input_ids" in parameters:
        raise ArgumentError(
            f"The inputs of {type(model).__name__} are not known; export it as package.module:function, where the "
            "function returns (model, args, kwargs).",
            id=MessageId.MODEL_SOURCE,
        )
    ids = _tokens(config, _SEQUENCE)
    kwargs: dict[str, Any] = {"input_ids": ids}
    if "attention_mask" in parameters:
        kwargs["attention_mask"] = torch.ones_like(ids)
    if "token_type_ids" in parameters and getattr(config, "type_vocab_size", 0) > 1:
        kwargs["token_type_ids"] = torch.zeros_like(ids)
    shapes: dict[str, Any] = {name: {0: "batch", 1: "sequence"} for name in kwargs}
    if "use_cache" in parameters:
        kwargs["use_cache"], shapes["use_cache"] = False, None
    return ModelSource(model, (), kwargs, shapes)


def _tokens(config: Any, length: int) -> torch.Tensor:
    import torch

    return torch.randint(0, config.get_text_config().vocab_size, (_BATCH, length))
