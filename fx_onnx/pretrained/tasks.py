"""The tasks: which class of transformers builds the model, which parts it is exported in, and with which inputs.

A task is one row of ``TASKS``. Its inputs are derived from the model's forward: each parameter that ``_INPUTS`` knows
becomes an input. A new architecture needs no row, unless its forward takes a tensor of a new name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fx_onnx.capture.text_generation import text_generation_arguments
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId

__all__ = ["TASKS", "Part", "Task"]


@dataclass(frozen=True)
class Part:
    """One graph of a model.

    Attributes:
        name: its role, for which a layout has a file name: ``model`` or ``decoder``.
        module: what is exported. A precision replaces it by a changed copy, and leaves the other fields.
        kwargs: the example arguments, with which the results are compared too.
        dynamic_shapes: the dynamic dims, by argument.
        outputs: the names of the graph outputs, in order. A layout may rename them, and the inputs.
    """

    name: str
    module: torch.nn.Module
    kwargs: dict[str, Any]
    dynamic_shapes: dict[str, Any]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        auto: the class of transformers that builds the model of a config.
        outputs: the fields of the model's result that are outputs of the graph.
        parts: returns the parts of a model.
    """

    auto: str
    outputs: tuple[str, ...]
    parts: Callable[[Any, Sequence[str]], list[Part]]


class _Fields(torch.nn.Module):
    """Returns some fields of a model's result, by name."""

    def __init__(self, model: torch.nn.Module, fields: Sequence[str], constants: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.fields, self.constants = model, tuple(fields), constants

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Runs the model."""
        result = self.model(**inputs, **self.constants)
        return {name: result[name] for name in self.fields}


# ---------------------------------------------------------------- inputs

_BATCH, _SEQUENCE, _SAMPLES = 2, 6, 4000
_TEXT = {0: "batch", 1: "sequence"}
_IMAGE = {0: "batch"}


def _tokens(config: Any) -> torch.Tensor:
    return torch.randint(0, config.get_text_config().vocab_size, (_BATCH, _SEQUENCE))


def _mask(config: Any) -> torch.Tensor:
    mask = torch.ones(_BATCH, _SEQUENCE, dtype=torch.int64)
    mask[0, -2:] = 0
    return mask


def _types(config: Any) -> torch.Tensor | None:
    """Returns the types of the tokens; None if the model has one type only."""
    types = getattr(config.get_text_config(), "type_vocab_size", 0)
    return torch.zeros(_BATCH, _SEQUENCE, dtype=torch.int64) if types > 1 else None


def _of_images(config: Any) -> Any:
    return getattr(config, "vision_config", config)


def _pixels(config: Any) -> torch.Tensor:
    config = _of_images(config)
    size = getattr(config, "image_size", 224)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return torch.randn(_BATCH, getattr(config, "num_channels", 3), height, width)


_INPUTS: dict[str, tuple[Callable[[Any], torch.Tensor | None], dict[int, str]]] = {
    "input_ids": (_tokens, _TEXT),
    "attention_mask": (_mask, _TEXT),
    "token_type_ids": (_types, _TEXT),
    "pixel_values": (_pixels, _IMAGE),
    "input_values": (lambda _: torch.randn(_BATCH, _SAMPLES), {0: "batch", 1: "samples"}),
}
"""Parameter of a forward → what makes an example for a config, and the dynamic dims."""


def _one_graph(model: Any, fields: Sequence[str]) -> list[Part]:
    """Returns the whole model as one part, whose inputs are those of ``_INPUTS`` that its forward takes."""
    parameters = inspect.signature(model.forward).parameters
    if model.main_input_name not in _INPUTS or "decoder_input_ids" in parameters:
        raise ArgumentError(
            f"The inputs of {type(model).__name__} are not known, because its main input is {model.main_input_name} "
            "or it has an encoder and a decoder; export its parts with fx_onnx.export.",
            id=MessageId.MODEL_SOURCE,
        )
    taken = {name for name in _INPUTS if name in parameters}
    if "input_ids" not in parameters:
        taken.discard("attention_mask")  # of patches or samples, of which the examples have no padding
    examples = {name: _INPUTS[name][0](model.config) for name in _INPUTS if name in taken}
    kwargs = {name: example for name, example in examples.items() if example is not None}
    constants = {"use_cache": False} if "use_cache" in parameters else {}
    with torch.no_grad():
        result = model(**kwargs, **constants)
    missing = [name for name in fields if getattr(result, name, None) is None]
    if missing:
        raise ArgumentError(
            f"{type(model).__name__} returns no {missing[0]}, which the task needs; choose another task.",
            id=MessageId.MODEL_SOURCE,
        )
    shapes = {name: dict(_INPUTS[name][1]) for name in kwargs}
    if "pixel_values" in shapes and not hasattr(_of_images(model.config), "image_size"):
        shapes["pixel_values"] |= {2: "height", 3: "width"}
    return [Part("model", _Fields(model, fields, constants).eval(), kwargs, shapes, tuple(fields))]


def _decoder(model: Any, fields: Sequence[str]) -> list[Part]:
    """Returns a decoder with its cache, as one program for prefill and decode."""
    arguments = text_generation_arguments(model, full_cache=True)
    cache = arguments["kwargs"].get("past_key_values")
    if cache is None or any(not hasattr(layer, "keys") for layer in cache.layers):
        raise ArgumentError(
            f"{type(model).__name__} keeps a state that is no key or value, for which no layout has a name; export it "
            "with fx_onnx.text_generation_arguments.",
            id=MessageId.MODEL_SOURCE,
        )
    ids = arguments["kwargs"]["input_ids"]
    kwargs = {**arguments["kwargs"], "input_ids": torch.randint(model.config.get_text_config().vocab_size, ids.shape)}
    present = [f"present.{layer}.{kind}" for layer in range(len(cache.layers)) for kind in ("key", "value")]
    return [Part("decoder", model, kwargs, arguments["dynamic_shapes"], (*fields, *present))]


# ---------------------------------------------------------------- the records

_LOGITS = ("logits",)
_HIDDEN = ("last_hidden_state",)

TASKS = {
    "audio-classification": Task("AutoModelForAudioClassification", _LOGITS, _one_graph),
    "audio-frame-classification": Task("AutoModelForAudioFrameClassification", _LOGITS, _one_graph),
    "automatic-speech-recognition": Task("AutoModelForCTC", _LOGITS, _one_graph),
    "depth-estimation": Task("AutoModelForDepthEstimation", ("predicted_depth",), _one_graph),
    "fill-mask": Task("AutoModelForMaskedLM", _LOGITS, _one_graph),
    "image-classification": Task("AutoModelForImageClassification", _LOGITS, _one_graph),
    "image-segmentation": Task("AutoModelForSemanticSegmentation", _LOGITS, _one_graph),
    "object-detection": Task("AutoModelForObjectDetection", ("logits", "pred_boxes"), _one_graph),
    "question-answering": Task("AutoModelForQuestionAnswering", ("start_logits", "end_logits"), _one_graph),
    "text-classification": Task("AutoModelForSequenceClassification", _LOGITS, _one_graph),
    "text-generation": Task("AutoModelForCausalLM", _LOGITS, _decoder),
    "token-classification": Task("AutoModelForTokenClassification", _LOGITS, _one_graph),
    "zero-shot-image-classification": Task(
        "AutoModelForZeroShotImageClassification",
        ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds"),
        _one_graph,
    ),
    "feature-extraction": Task("AutoModel", _HIDDEN, _one_graph),
    "image-feature-extraction": Task("AutoModel", _HIDDEN, _one_graph),
}
"""The name of a task, as in transformers' pipelines → its record.

The first whose class builds an architecture is its default. AutoModel builds every type, so its tasks are the last.
"""
