"""The parts of a stream: a module that takes a chunk and its states, or a transducer of three modules.

The states go in and out of the graph. The new value of the state ``cache.0`` is the output ``cache.0_out``, and the
metadata of the file tells the shape of the first states, which are zero.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fx_onnx.applications.codecs import codec_stream
from fx_onnx.applications.inputs import input_names, parameters_of
from fx_onnx.applications.parts import Given, Part, running
from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError, VerificationError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.tolerances import Limits, distance_of
from fx_onnx.requests.pytrees import is_cache_part, tensors_in
from fx_onnx.torch_internals.torch_private import pytree

if TYPE_CHECKING:
    from fx_onnx.program.onnx_program import ONNXProgram

__all__ = ["check_stream", "describe_states", "stream"]

_CHUNKS = 4
"""The number of chunks in a row for which the results are compared."""


def stream(model: nn.Module, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the part of a module that takes a chunk and its states, or the three parts of a transducer.

    A transducer has the modules ``encoder``, ``decoder`` and ``joiner``. The decoder takes the last
    ``decoder.context_size`` tokens (batch, context), int64. Its result (batch, size) and one frame of the encoder's
    result (batch, frames, size) are the arguments of the joiner, which returns the logits (batch, vocabulary).

    Args:
        model: the module.
        fields: not used.
        given: the examples of the inputs by parameter. The states are those whose tensors are all zero. The module
            returns their new values last, in this order. Mimi needs no examples.

    Raises:
        ArgumentError: the module does not run, no input is a state, or the results do not end with the states.
    """
    model, given = codec_stream(model, given)
    parts: list[Any] = [getattr(model, name, None) for name in ("encoder", "decoder", "joiner")]
    if not all(isinstance(part, nn.Module) for part in parts):
        return [_part("model", model, given)]
    encoder, decoder, joiner = parts
    first = _part("encoder", encoder, given)
    with running(model, "the decoder and joiner"):
        frame = _values(encoder(**copy.deepcopy(first.kwargs)))[0][:, 0]
        tokens = torch.zeros(len(frame), decoder.context_size, dtype=torch.int64)
        last = decoder(tokens)
    rows = [("decoder", decoder, (tokens,), "decoder_out"), ("joiner", joiner, (frame, last), "logits")]
    return [first, *(_stateless(*row) for row in rows)]


def _stateless(name: str, module: Any, args: tuple[Tensor, ...], output: str) -> Part:
    kwargs = dict(zip(parameters_of(module.forward), args, strict=False))
    return Part(name, module, kwargs, {key: {0: "batch"} for key in kwargs}, (output,))


def _part(name: str, module: nn.Module, given: Mapping[str, Any]) -> Part:
    """Returns the part of a module, with the states after a first chunk as the example."""
    states = {key: value for key, value in given.items() if _is_zero(value)}
    if not states or len(states) == len(given):
        raise ArgumentError(
            f"The inputs of a stream are a chunk and its first states, whose tensors are all zero, not {shown(given)}; "
            "give both as inputs=.",
            id=MessageId.MODEL_SOURCE,
        )
    with running(module, f"the examples of {', '.join(given)}"):
        values = _values(module.eval()(**copy.deepcopy(dict(given))))  # it may change the lists of its states
    results, new = values[: -len(states)], dict(zip(states, values[-len(states) :], strict=False))
    for key, state in states.items():
        if _form(state) != _form(new.get(key)):
            raise ArgumentError(
                f"{type(module).__name__} must return the new values of {', '.join(states)} last, in this order, but "
                f"there is no {key} with the structure and the dtypes of the input.",
                id=MessageId.MODEL_SOURCE,
            )
    if not results:
        raise ArgumentError(
            f"{type(module).__name__} must return a result before the new values of {', '.join(states)}, but it "
            f"returns {len(values)} in all.",
            id=MessageId.MODEL_SOURCE,
        )
    for key in [key for key in given if key not in states][1:]:
        is_float = any(leaf.is_floating_point() for leaf in tensors_in(given[key]))  # no lengths
        if is_float and any(
            _form(result) == _form(given[key]) and _sizes(result) == _sizes(given[key]) for result in results[1:]
        ):
            warn(
                f"The input {key} is taken for a part of the chunk, because it is not zero; the first value of a state "
                "must be zero.",
                MessageId.MODEL_SOURCE,
            )
    kwargs = {**given, **new}
    batch = next(leaf.shape[0] for leaf in pytree.tree_leaves(given) if leaf.dim())
    dims = {key: _dims_of(key, given[key], value, batch) for key, value in kwargs.items()}
    names = [name for name in input_names(kwargs) if name.split(".")[0] in states]
    leaves = pytree.tree_leaves(results)
    outputs = ["output"] if len(leaves) == 1 else [f"output.{index}" for index in range(len(leaves))]
    return Part(name, module, kwargs, dims, (*outputs, *(f"{name}_out" for name in names)), initial=states)


def _is_zero(value: Any) -> bool:
    return bool(tensors_in(value)) and not any(leaf.any() for leaf in tensors_in(value))


def _sizes(tree: Any) -> list[torch.Size]:
    return [leaf.shape for leaf in tensors_in(tree)]


def _form(tree: Any) -> Any:
    """Returns the structure of a tree of tensors, and their dtypes and ranks. A list and a tuple are equal.

    Caches of transformers may differ in what they note beside their tensors, such as whether there was a call.
    """
    if isinstance(tree, (list, tuple)):
        return [_form(item) for item in tree]
    leaves, spec = pytree.tree_flatten(tree)
    return None if is_cache_part(tree) else spec, [
        (leaf.dtype, leaf.dim()) if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves
    ]


def _values(results: Any) -> list[Any]:
    """Returns the results of a module one by one."""
    if isinstance(results, Mapping):
        return list(results.values())
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _dims_of(key: str, old: Any, new: Any, batch: int) -> Any:
    """Returns the dynamic dims of the tensors of an input. Those of a cache of transformers share their dims."""
    if not is_cache_part(old):
        return pytree.tree_map(lambda first, later: _dims(key, first, later, batch), old, new)
    leaves = [_dims(key, *pair, batch) for pair in zip(tensors_in(old), tensors_in(new), strict=True)]
    return {axis: name for leaf in leaves for axis, name in (leaf or {}).items()}


def _dims(key: str, old: Tensor, new: Tensor, batch: int) -> dict[int, str] | None:
    """Returns the dynamic dims of a tensor: the batch, and the axis along which a state grows.

    Raises:
        ArgumentError: several axes may be the batch.
    """
    sizes = list(zip(old.shape, new.shape, strict=True))
    axes = [axis for axis, pair in enumerate(sizes) if batch > 1 and pair == (batch, batch)]
    if len(axes) > 1:
        raise ArgumentError(
            f"Several axes of {key} have the size of the batch, {batch}; give examples of another batch.",
            id=MessageId.MODEL_SOURCE,
        )
    return dict.fromkeys(axes, "batch") | {a: "past" for a, (size, later) in enumerate(sizes) if size != later} or None


def describe_states(program: ONNXProgram, part: Part) -> dict[str, str]:
    """Returns the metadata of a file: the key ``states`` has JSON with the first states, which are zero.

    A row has ``input``, ``output``, ``dtype`` and ``shape``, in which a dim without a fixed size has its name.
    """
    initial = dict(zip(input_names(part.initial), tensors_in(part.initial), strict=True))
    values = {str(value.name): value for value in program.model.graph.inputs}
    outputs = [str(value.name) for value in program.model.graph.outputs]
    if outputs != list(part.outputs):
        raise ArgumentError(
            f"{type(part.module).__name__} writes to tensors, which gives the outputs {', '.join(outputs)} instead of "
            f"{', '.join(part.outputs)}; return new states, and write to no buffer.",
            id=MessageId.MODEL_SOURCE,
        )
    rows = [
        {
            "input": name,
            "output": output,
            "dtype": str(first.dtype).removeprefix("torch."),
            "shape": [
                size if isinstance(dim, int) or size == 0 else str(dim.value)
                for dim, size in zip(values[name].shape or (), first.shape, strict=True)
            ],
        }
        for (name, first), output in zip(initial.items(), outputs[-len(initial) :], strict=True)
    ]
    return {"states": json.dumps(rows)}


def check_stream(program: ONNXProgram, part: Part, rtol: float | None) -> None:
    """Compares several chunks in a row, each side with its own states, beginning with zeros.

    Args:
        program: the program of the part.
        part: has the module in the precision of the program.
        rtol: the allowed difference relative to the largest magnitude of a result; None depends on the dtype.

    Raises:
        VerificationError: the results of a chunk differ.
    """
    first, names = dict(part.initial), input_names(part.kwargs)
    expected_states: dict[str, Any] = first
    actual_states = tensors_in(first)
    for number in range(_CHUNKS):
        chunk = {key: _chunk(value, number) for key, value in part.kwargs.items() if key not in first}
        with torch.no_grad():
            results = _values(part.module(**copy.deepcopy({**chunk, **expected_states})))
        states = iter(actual_states)
        new = {
            key: chunk[key] if key in chunk else [next(states) for _ in tensors_in(value)]
            for key, value in part.kwargs.items()
        }
        actual = program(**dict(zip(names, tensors_in(new), strict=True)))
        for name, want, got in zip(part.outputs, tensors_in(results), actual, strict=True):
            is_float = want.is_floating_point() or want.is_complex()
            problem = distance_of(want, got, Limits(rtol) if rtol is not None and is_float else None).problem
            if problem:
                raise VerificationError(
                    f"The output {name} differs from the module's for chunk {number + 1} of a stream: {problem}."
                )
        expected_states = dict(zip(first, results[-len(first) :], strict=True))
        actual_states = list(actual[-len(actual_states) :])


def _chunk(value: Any, number: int) -> Any:
    """Returns another example of a chunk. Lengths and other numbers for each item of a batch stay."""
    return pytree.tree_map(lambda leaf: leaf.roll(number, -1) if leaf.dim() > 1 else leaf, value)
