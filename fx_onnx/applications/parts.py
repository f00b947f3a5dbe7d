"""The parts of models with one graph: what is exported, with which example inputs and dynamic dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fx_onnx.applications.inputs import constants_of, example_inputs, larger_images, text_inputs
from fx_onnx.applications.text_generation import takes_padding, text_generation_arguments
from fx_onnx.messages.errors import ArgumentError, first_line
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_private import pytree

__all__ = [
    "Features",
    "Fields",
    "Given",
    "Part",
    "decoder",
    "decoder_arguments",
    "decoder_of_tokens",
    "graph",
    "half",
    "multiple_choice",
    "one_graph",
]

Given = Mapping[str, torch.Tensor]
"""Parameter of a forward → its example, from a processor or the caller."""


@dataclass(frozen=True)
class Part:
    """One graph of a model.

    Attributes:
        name: its role, for which a layout has a file name, such as ``model`` or ``encoder_model``.
        module: what is exported. A precision replaces it by a changed copy, and leaves the other fields.
        kwargs: the example arguments, with which the results are compared too. The path of a tensor in them, with dots,
            is the name of its input.
        dynamic_shapes: the dynamic dims, by argument.
        outputs: the names of the graph outputs, in order.
        forms: the forms of the model that it belongs to, of which a layout takes one; empty for all forms.
        larger: images with which the model is captured, instead of those of the example, if they keep its sizes right.
        metadata: what the file tells the application beside the graph.
        initial: the arguments that are the first states of a stream, which are zero.
    """

    name: str
    module: torch.nn.Module
    kwargs: dict[str, Any]
    dynamic_shapes: dict[str, Any]
    outputs: tuple[str, ...]
    forms: tuple[str, ...] = ()
    larger: Mapping[str, torch.Tensor] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    initial: Mapping[str, Any] = field(default_factory=dict)


class Fields(torch.nn.Module):
    """Returns some fields of a model's result, by name.

    Args:
        model: a model of transformers.
        fields: the names.
        constants: arguments of its forward that are no inputs.
    """

    def __init__(self, model: torch.nn.Module, fields: Sequence[str], constants: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.fields, self.constants = model, tuple(fields), dict(constants)

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Runs the model."""
        result = self.model(**inputs, **self.constants)
        missing = [name for name in self.fields if result.get(name) is None]
        if missing:
            raise ArgumentError(
                f"{type(self.model).__name__} returns no {missing[0]}, which the task needs; choose another task.",
                id=MessageId.MODEL_SOURCE,
            )
        return {name: result[name] for name in self.fields}


class Features(torch.nn.Module):
    """Returns the features that a method of a model computes, such as CLIP's ``get_text_features``.

    Args:
        model: a model of transformers.
        method: the name of the method.
        field: the name of the result.
        as_rows: whether the features of all inputs become one matrix.
    """

    def __init__(self, model: torch.nn.Module, method: str, field: str, *, as_rows: bool = False) -> None:
        super().__init__()
        self.model, self.method, self.field, self.as_rows = model, method, field, as_rows

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Runs the method."""
        with _UndividedBatch() if self.as_rows else nullcontext():
            result = getattr(self.model, self.method)(**inputs)
        result = getattr(result, "pooler_output", result)
        if self.as_rows:
            result = torch.cat([tensor.flatten(0, -2) for tensor in pytree.tree_leaves(result)])
        return {self.field: result}


class _UndividedBatch(TorchFunctionMode):
    """Keeps a tensor whole that is divided into the items of a dynamic batch, of which a list would fix the number."""

    divided: torch.Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Returns the whole tensor as the only item, and 1 as the length that ``list`` asks for next."""
        last, self.divided = self.divided, None
        if func is torch.Tensor.__len__ and args[0] is last:
            return 1
        if func is torch.Tensor.unbind and args[1:] in ((), (0,)) and isinstance(args[0].shape[0], torch.SymInt):
            self.divided = args[0]
            return args[:1]
        return func(*args, **kwargs or {})


def one_graph(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the whole model as one part, whose inputs are those that its forward takes.

    Raises:
        ArgumentError: the inputs cannot be derived, or the result lacks a field.
    """
    module = Fields(model, fields, constants_of(model)).eval()
    return [graph("model", module, *_with_own_texts(module, *example_inputs(model, given)))]


def _with_own_texts(
    module: torch.nn.Module, kwargs: dict[str, Any], shapes: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Gives texts a batch of their own if a model takes twice as many of them as of images or sounds, as CLIP does."""
    texts = text_inputs(kwargs)
    more = kwargs | {name: torch.cat([kwargs[name]] * 2) for name in texts}
    if not texts or len(texts) == len(kwargs) or _outputs(module, more) is None:
        return kwargs, shapes
    return more, shapes | {name: shapes[name] | {0: "texts"} for name in texts}


def _outputs(module: torch.nn.Module, kwargs: dict[str, Any]) -> Any:
    """Returns the results of a module; None if it does not run."""
    try:
        with running(module, "other inputs"):
            return module(**kwargs)
    except ArgumentError:
        return None


def multiple_choice(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the whole model as one part, whose inputs have an axis of choices after the batch."""
    kwargs, shapes = example_inputs(model, given)
    choices = {name: value[:, None].repeat(1, 3, 1) for name, value in kwargs.items()}
    dims = {name: {0: "batch", 1: "choices", 2: "sequence"} for name in shapes}
    return [graph("model", Fields(model, fields, constants_of(model)), choices, dims)]


def graph(name: str, module: torch.nn.Module, kwargs: dict[str, Any], shapes: dict[str, Any]) -> Part:
    """Returns a part whose module returns a dict of outputs. An input that the module does not read is left out.

    Raises:
        ArgumentError: the module does not run, or its model's result lacks a field.
    """
    with running(getattr(module, "model", module), f"the examples of {', '.join(kwargs)}"), _Reads() as reads:
        result = module.eval()(**kwargs)
    read = {name: value for name, value in kwargs.items() if id(value) in reads.ids}
    if len(read) < len(kwargs) and _equal(_outputs(module, read), result):
        kwargs, shapes = read, {name: shapes[name] for name in read}
    larger = larger_images(kwargs)
    if larger and _outputs(module, {**kwargs, **larger}) is None:
        larger = {}
    return Part(name, module, kwargs, shapes, tuple(result), larger=larger)


class _Reads(TorchFunctionMode):
    """Notes which tensors are read, as in a CLAP without fusion, which passes ``is_longer`` on and never asks it."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = set[int]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes the arguments."""
        self.ids |= {id(leaf) for leaf in pytree.tree_leaves((args, kwargs))}
        return func(*args, **(kwargs or {}))


def _equal(first: dict[str, torch.Tensor] | None, second: dict[str, torch.Tensor]) -> bool:
    return first is not None and all(torch.equal(first[name], second[name]) for name in second)


@contextmanager
def running(model: torch.nn.Module, inputs: str) -> Iterator[None]:
    """Turns an error of a model into an ArgumentError that tells on which inputs it does not run."""
    try:
        with torch.no_grad():
            yield
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"{type(model).__name__} does not run on {inputs}: {first_line(error)}; pass inputs=, real inputs by name.",
            id=MessageId.MODEL_SOURCE,
        ) from error


def half(name: str, method: str, projection: str, field: str) -> Callable[[Any, Sequence[str], Given], list[Part]]:
    """Returns what makes the part of one half of a model of two kinds of inputs, such as CLIP's for texts.

    Args:
        name: the name of the part.
        method: the model's method that computes the half.
        projection: the attribute of models whose features are projected.
        field: the name of the output of such a model; it is ``pooler_output`` for others, such as SigLIP.
    """

    def parts(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
        features = Features(model, method, field if hasattr(model, projection) else "pooler_output")
        return [graph(name, features, *example_inputs(model, given, getattr(model, method)))]

    return parts


# ---------------------------------------------------------------- decoders


def decoder_arguments(model: Any) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """Returns example arguments of a decoder with a past, the dynamic dims, and the names of the new cache's tensors.

    Raises:
        ArgumentError: the model is no decoder, or its cache holds more than keys and values.
    """
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
    present = tuple(f"present.{layer}.{kind}" for layer in range(len(cache.layers)) for kind in ("key", "value"))
    return kwargs, arguments["dynamic_shapes"], present


def decoder(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns a decoder with its cache, as one program for prefill and decode."""
    kwargs, shapes, present = decoder_arguments(model)
    return [Part("decoder", model, kwargs, shapes, (*fields, *present))]


def decoder_of_tokens(model: Any) -> list[Part]:
    """Returns a decoder without images or sounds. Its cache may hold any state, whose outputs have no names yet."""
    arguments = text_generation_arguments(model, padding=takes_padding(model), full_cache=True)
    return [Part("decoder", model, arguments["kwargs"], arguments["dynamic_shapes"], ())]
