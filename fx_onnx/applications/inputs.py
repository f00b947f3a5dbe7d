"""The example inputs of a model, derived from its forward, its config and its processor."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from fx_onnx.capture.pytrees import leaves, register
from fx_onnx.messages.errors import ArgumentError, first_line
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_private import pytree

__all__ = [
    "constants_of",
    "example_inputs",
    "input_names",
    "larger_images",
    "parameters_of",
    "parts_of",
    "processed",
    "text_inputs",
]

_BATCH, _SEQUENCE, _SAMPLES = 2, 6, 16000
_TEXT = {0: "batch", 1: "sequence"}
_IMAGE = {0: "batch"}
_PIXELS = {"pixel_values": 4, "pixel_values_videos": 4, "pixel_mask": 3}
"""Input whose last axes are the height and the width of images → the least number of its axes."""
_SIDE = 128
"""The least height and width of images of an example. Inside of many models it is divided by 32, or by 64."""


def parameters_of(call: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of a forward."""
    return inspect.signature(call).parameters


def constants_of(model: Any) -> dict[str, Any]:
    """Returns the arguments of the forward of a model with one graph that are no inputs."""
    return {"use_cache": False} if "use_cache" in parameters_of(model.forward) else {}


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


def _boxes(config: Any) -> torch.Tensor:
    return torch.sort(torch.randint(0, 100, (_BATCH, _SEQUENCE, 4)), -1).values


def _of_images(config: Any) -> Any:
    return next((part for name in ("vision_config", "encoder") if (part := getattr(config, name, None))), config)


def _image(config: Any) -> torch.Tensor:
    config = _of_images(config)
    size = getattr(config, "image_size", 224)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return torch.randn(_BATCH, getattr(config, "num_channels", 3), height, width)


def _video(config: Any) -> torch.Tensor:
    return _image(config)[:, None].repeat(1, getattr(config, "num_frames", 4), 1, 1, 1)


def _pixels(config: Any) -> torch.Tensor:
    return _video(config) if hasattr(config, "num_frames") else _image(config)


def _series(config: Any) -> torch.Tensor:
    return torch.randn(_BATCH, config.context_length, config.num_input_channels)


_INPUTS: dict[str, tuple[Callable[[Any], torch.Tensor | None], dict[int, str]]] = {
    "input_ids": (_tokens, _TEXT),
    "attention_mask": (_mask, _TEXT),
    "token_type_ids": (_types, _TEXT),
    "bbox": (_boxes, _TEXT),
    "pixel_values": (_pixels, _IMAGE),
    "pixel_values_videos": (_video, _IMAGE),
    "input_values": (lambda _: torch.randn(_BATCH, _SAMPLES), {0: "batch", 1: "samples"}),
    "past_values": (_series, _IMAGE),
}
"""Parameter of a forward → what makes an example for a config, and the dynamic dims."""


def example_inputs(
    model: Any, given: Mapping[str, torch.Tensor] = MappingProxyType({}), call: Callable[..., Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns example inputs of a model, and the dynamic dims of each.

    An input is a parameter of the forward that is given or in ``_INPUTS``. A given input of another name has a dynamic
    batch only.

    Args:
        model: a model of transformers. A decoder in it computes its inputs from the others, unless they are given.
        given: real inputs, which are preferred.
        call: a method of the model that is called instead of the forward.

    Raises:
        ArgumentError: the forward needs an input that is neither given nor known.
    """
    parameters = parameters_of(call or model.forward)
    main = next(iter(parameters)) if call is not None else model.main_input_name
    if main not in _INPUTS and main not in given:
        raise ArgumentError(
            f"The inputs of {type(model).__name__} are not known, because its main input is {main}; pass examples as "
            "inputs=, or choose a task of its parts.",
            id=MessageId.MODEL_SOURCE,
        )
    if "input_ids" in given and "input_ids" not in parameters:  # a mask of texts is none of sounds
        size = given["input_ids"].shape
        given = {name: value for name, value in given.items() if value.shape != size}
    taken = {name for name in _INPUTS if name in parameters and name not in given}
    if "input_ids" not in parameters or "input_ids" in given:
        taken -= {"attention_mask", "token_type_ids"}  # of patches or samples, of which the examples have no padding
    try:
        examples = {name: _INPUTS[name][0](model.config) for name in _INPUTS if name in taken}
    except ValueError as error:  # a config that has several texts, as that of MusicGen
        raise ArgumentError(
            f"The inputs of {type(model).__name__} cannot be derived: {first_line(error)} Pass inputs=, real inputs.",
            id=MessageId.MODEL_SOURCE,
        ) from error
    kwargs = {name: example for name, example in examples.items() if example is not None}
    kwargs |= {name: given[name] for name in given if name in parameters}
    kwargs = {name: kwargs[name] for name in (*_INPUTS, *given) if name in kwargs}
    return kwargs, {name: _dims(name, example) for name, example in kwargs.items()}


def larger_images(kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Returns the images of an example as tiles of larger ones, whose height and width differ.

    A model may treat the size of the images with which it was trained specially, and so does a size of 1 inside of it.
    Multiples of the height and the width keep what divides them. None are returned for images that are large enough.
    """
    images = {name: image for name, image in kwargs.items() if image.dim() >= _PIXELS.get(name, image.dim() + 1)}
    if not images:
        return {}
    height, width = next(iter(images.values())).shape[-2:]
    rows, columns = -(-_SIDE // height), -(-_SIDE // width)
    columns += rows * height == columns * width
    tiles = {name: image.repeat(*[1] * (image.dim() - 2), rows, columns) for name, image in images.items()}
    return tiles if rows * columns > 1 else {}


def text_inputs(kwargs: Mapping[str, Any]) -> list[str]:
    """Returns the inputs that have a number for each token of a text; none if the model reads no tokens."""
    return [name for name in kwargs if name in _INPUTS and _INPUTS[name][1] is _TEXT] if "input_ids" in kwargs else []


def _dims(name: str, example: torch.Tensor) -> dict[int, str]:
    dims, rank = _INPUTS[name][1] if name in _INPUTS else _IMAGE, example.dim()
    if rank >= _PIXELS.get(name, rank + 1):
        return {**_IMAGE, rank - 2: "height", rank - 1: "width"}
    return dict(dims if rank >= len(dims) else _IMAGE)


def input_names(kwargs: Mapping[str, Any]) -> list[str]:
    """Returns the names of the graph inputs: the paths of the tensors in the arguments, with dots."""
    register(dict(kwargs))
    values, spec = pytree.tree_flatten(dict(kwargs))
    paths = [".".join(map(str, leaf.path)) for leaf in leaves(spec)]
    return [path for path, value in zip(paths, values, strict=True) if isinstance(value, torch.Tensor)]


# ---------------------------------------------------------------- processors

_TEXTS = ["a photo of a cat", "two dogs"]


def processed(processors: Iterable[Any]) -> dict[str, torch.Tensor]:
    """Returns what processors make of two texts, images and sounds.

    Args:
        processors: tokenizers, image processors, feature extractors, or processors that have some of them.

    Raises:
        ArgumentError: one of them does not take such examples.
    """
    tensors: dict[str, torch.Tensor] = {}
    for part in parts_of(processors):
        try:
            made = _examples_of(part)
        except (TypeError, ValueError, RuntimeError, AttributeError, KeyError) as error:
            raise ArgumentError(
                f"{type(part).__name__} does not take two plain examples: {first_line(error)}; pass its results "
                "as inputs=.",
                id=MessageId.MODEL_SOURCE,
            ) from error
        tensors |= {name: value for name, value in made.items() if isinstance(value, torch.Tensor)}
    return tensors


def parts_of(processors: Iterable[Any]) -> Iterator[Any]:
    """Yields the tokenizers, image processors and feature extractors of processors, and the processors themselves."""
    for processor in processors:
        owned = [getattr(processor, name, None) for name in ("tokenizer", "image_processor", "feature_extractor")]
        yield from filter(None, [*owned, processor])


def _examples_of(part: Any) -> Mapping[str, Any]:
    """Returns what a tokenizer, image processor or feature extractor makes; nothing for another object."""
    noise = torch.Generator().manual_seed(0)
    if hasattr(part, "convert_tokens_to_ids") and not hasattr(part, "tokenizer"):
        texts = _TEXTS if part.pad_token is not None else _TEXTS[:1] * 2
        return part(texts, padding=part.pad_token is not None, return_tensors="pt")  # type: ignore[no-any-return]
    if hasattr(part, "sampling_rate"):
        sounds = [torch.randn(part.sampling_rate // 2, generator=noise).numpy() for _ in _TEXTS]
        return part(sounds, sampling_rate=part.sampling_rate, return_tensors="pt")  # type: ignore[no-any-return]
    if hasattr(part, "do_resize") or hasattr(part, "image_mean"):
        image = torch.randint(0, 256, (3, 96, 128), generator=noise, dtype=torch.uint8)
        return part([image, image], return_tensors="pt")  # type: ignore[no-any-return]
    return {}
