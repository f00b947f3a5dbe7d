"""Finds the inputs and outputs of a decoder with a cache: tokens, mask, positions, logits, past and present.

The names are those of transformers: ``input_ids``, ``attention_mask``, ``position_ids`` and ``logits``. A tensor of the
cache has any name with the number of its layer and a word that tells its role, such as ``past_key_values.0.key`` and
``past_key_values.1.conv_states.0``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata

__all__ = ["DecoderInterface", "find_decoder_interface"]

_HOW = (
    "export a model of transformers with the arguments that fx_onnx.text_generation_arguments(model, full_cache=True) "
    "returns"
)
_IN_PLACE = {"GroupQueryAttention": (3, 4), "TensorScatter": (0,)}
"""Operators that write new keys and values into the buffer of the past → the inputs that are the past."""


_INDEXER = re.compile(r"\.indexer_keys\b")
"""In the name of an input: what the indexers of sparse attention keep in a cache."""
_ROLES = {
    "key": "key", "value": "value", "conv_state": "conv", "recurrent_state": "recurrent", "linear_cache": "recurrent",
}  # fmt: skip
"""The last word in the name of a tensor of the cache → its role, as onnxruntime-genai names it."""
_OF_TOKENS = {
    "input_ids": (2,), "inputs_embeds": (3,), "per_layer_inputs": (3,), "attention_mask": (2,), "position_ids": (2, 3),
}  # fmt: skip
"""The name of an input with values for each token → the ranks that it may have. Only integers have the rank 2."""
_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)
_RANKS = {"key": (4,), "value": (4,), "conv": (3,), "recurrent": (3, 4)}


@dataclass(frozen=True)
class DecoderInterface:
    """The inputs and outputs of a decoder, by name.

    Attributes:
        inputs: role (``input_ids``, ``attention_mask``, ``position_ids``) → the name of the input, which is the role.
        past: role (``key``, ``value``, ``conv``, ``recurrent``) → the template of the names of the past, with ``%d``
            for the layer. Layers without attention have the states of a convolution and of a recurrence.
        present: the same for the outputs that are the past of the next step.
        logits: the name of the output of shape (batch, sequence or 1, vocabulary).
        layers: the number of layers, up to the last one with a cache.
        heads: the number of heads of keys and values in the first layer; onnxruntime-genai finds those of the others.
            It is 1 without attention.
        head_size: the size of a head in the first layer; 1 without attention.
        vocabulary: the number of logits of a token.
        capacity: the number of tokens in the cache if it has a fixed size, or None if it grows.
        writes_in_place: whether past and present may be one buffer, because each layer writes the new keys and values
            into the past.
        skips_padding: whether each layer writes them over the padding of the prompt, so that no padding lies within a
            sliding window.
        logits_length: the fixed number of tokens that have logits, or None if all have.
        conv_layers: the layers with the state of a convolution.
        conv_shape: the channels and the columns of the first of these states, or None.
    """

    inputs: tuple[str, ...]
    past: dict[str, str]
    present: dict[str, str]
    logits: str
    layers: int
    heads: int
    head_size: int
    vocabulary: int
    capacity: int | None
    writes_in_place: bool
    skips_padding: bool
    logits_length: int | None
    conv_layers: frozenset[int] = frozenset()
    conv_shape: tuple[int, int] | None = None

    @property
    def needs_equal_prompts(self) -> str | None:
        """Tells why shorter prompts of a batch, which onnxruntime-genai pads on the right, would give wrong results."""
        if {"conv", "recurrent"} & self.past.keys():
            return "has layers with a state, which the padding of a prompt changes"
        missing = [name for name in ("attention_mask", "position_ids") if name not in self.inputs]
        if missing:
            return f"has no input {missing[0]}"
        return None if self.logits_length is None else "returns the logits of the last token only, which may be padding"


def find_decoder_interface(model: ir.Model) -> DecoderInterface:
    """Returns the inputs and outputs of a decoder with a cache.

    Raises:
        ArgumentError: an input or output is missing, or has another shape. The message tells how to export the model.
    """
    graph = model.graph
    inputs = {str(value.name): value for value in graph.inputs if not value.is_initializer()}
    outputs = {str(value.name): value for value in graph.outputs}
    _refuse_state(graph, inputs)
    past, layers = _cache_templates(inputs.values(), "input")
    present, produced = _cache_templates(outputs.values(), "output")
    if layers != produced:
        raise _unfit(f"it takes the cache of {_counts(layers)}, but returns that of {_counts(produced)}")
    places = sorted((layer, role) for role, numbers in layers.items() for layer in numbers)
    pasts = [inputs[past[role] % layer] for layer, role in places]
    presents = [outputs[present[role] % layer] for layer, role in places]
    tokens = _tokens(inputs)
    heads, capacity, head_size = _cache_shape(
        [inputs[past[role] % layer] for layer, role in places if role in ("key", "value")]
    )
    logits = _logits(graph.outputs)
    _, length, vocabulary = logits.shape or (None, None, None)
    if not isinstance(vocabulary, int):
        raise _unfit("the size of the vocabulary, the last dim of the logits, is not static")
    _refuse_other_inputs(inputs, {*tokens, *(str(value.name) for value in pasts)})
    return DecoderInterface(
        inputs=tokens,
        past=past,
        present=present,
        logits=str(logits.name),
        layers=1 + max(layer for layer, _ in places),
        heads=heads,
        head_size=head_size,
        vocabulary=vocabulary,
        capacity=capacity,
        writes_in_place=all(map(_is_written_in_place, pasts, presents)),
        skips_padding=all(map(_skips_padding, presents)),
        logits_length=length if isinstance(length, int) else None,
        conv_layers=frozenset(layers.get("conv", ())),
        conv_shape=_conv_shape([inputs[past[role] % layer] for layer, role in places if role == "conv"]),
    )


def _unfit(reason: str, *, how: str = f"; {_HOW}") -> ArgumentError:
    return ArgumentError(
        f"The program is no decoder for onnxruntime-genai, because {reason}{how}.", id=MessageId.GENAI_PROGRAM
    )


def _refuse_state(graph: ir.Graph, inputs: Iterable[str]) -> None:
    if (name := next((name for name in inputs if _INDEXER.search(name)), None)) is not None:
        raise _unfit(f"the input {name!r} is the cache of an indexer, which onnxruntime-genai does not have", how="")
    for value in graph.outputs:
        if value.metadata_props.get(metadata.OUTPUT_KIND) == "BUFFER_MUTATION":
            raise _unfit(f"it writes the buffer {str(value.name).removesuffix('_out')!r}, which would not be kept")


# ---------------------------------------------------------------- the cache


def _cache_templates(values: Iterable[ir.Value], kind: str) -> tuple[dict[str, str], dict[str, set[int]]]:
    """Returns the template of the names of each role, and the numbers of the layers that have it.

    The number of the layer is before the word of the role, if there is one; else after it. Of several numbers, it is
    the one with the most values, or the last one.
    """
    numbers: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for value in values:
        name = str(value.name)
        word = max(_ROLES, key=name.rfind)
        if word in name and _is_state(value) and len(value.shape or ()) in _RANKS[_ROLES[word]]:
            found_in = list(re.finditer(r"\d+", name))
            before = [number for number in found_in if number.end() <= name.rfind(word)]
            for number in reversed(before or found_in):
                template = f"{name[: number.start()]}%d{name[number.end() :]}"
                numbers[_ROLES[word]][template].add(int(number.group()))
    templates = {
        role: max(by_template, key=lambda template: len(by_template[template]))
        for role, by_template in sorted(numbers.items())
    }
    layers = {role: numbers[role][template] for role, template in templates.items()}
    attention = layers.get("key", set()), layers.get("value", set())
    if not templates or attention[0] != attention[1]:
        raise _unfit(f"it has no {kind}s for keys and values whose names differ in the number of the layer only")
    return templates, layers


def _counts(layers: Mapping[str, Collection[int]]) -> str:
    return f"{len(set().union(*layers.values()))} layers"


def _cache_shape(pasts: Sequence[ir.Value]) -> tuple[int, int | None, int]:
    """Returns heads, the fixed number of tokens or None, and the head size of the past (batch, heads, past, size)."""
    if not pasts:
        return 1, None, 1
    shapes = [tuple(str(dim) for dim in value.shape or ()) for value in pasts]
    lengths = {shape[2] for shape in shapes}
    if len(lengths) > 1:
        raise _unfit(
            f"the layers keep different numbers of tokens ({', '.join(sorted(lengths))}), and onnxruntime-genai gives "
            "all of them the same past"
        )
    if len({value.dtype for value in pasts}) > 1:
        raise _unfit(
            "the layers keep keys and values in different dtypes, and onnxruntime-genai has one for all", how=""
        )
    if any((key[1], key[3]) != (value[1], value[3]) for key, value in zip(shapes[::2], shapes[1::2], strict=True)):
        raise _unfit("keys and values have different numbers or sizes of heads", how="")
    _, heads, length, size = shapes[0]
    if not heads.isdigit() or not size.isdigit():
        raise _unfit(f"the number and the size of heads of {pasts[0].name!r} are not static")
    in_a_byte = 2 if pasts[0].dtype == ir.DataType.UINT8 else 1
    return int(heads), int(length) if length.isdigit() else None, int(size) * in_a_byte


def _conv_shape(pasts: Sequence[ir.Value]) -> tuple[int, int] | None:
    """Returns the channels and the columns of the states of convolutions (batch, channels, columns)."""
    shapes = [tuple(value.shape or ())[1:] for value in pasts]
    if not shapes:
        return None
    if not all(isinstance(size, int) for size in shapes[0]):
        raise _unfit(f"the sizes of {pasts[0].name!r} are not static")
    return shapes[0]  # type: ignore[return-value]


def _is_written_in_place(past: ir.Value, present: ir.Value) -> bool:
    """Returns whether one node writes into the past, which nothing else reads, and returns it as the present."""
    node = present.producer()
    if node is None or node.op_type not in _IN_PLACE or len(past.uses()) != 1:
        return False
    return any(len(node.inputs) > index and node.inputs[index] is past for index in _IN_PLACE[node.op_type])


def _skips_padding(present: ir.Value) -> bool:
    """Returns whether the node that returns the present takes the number of tokens of each text."""
    node = present.producer()
    return node is not None and node.op_type == "GroupQueryAttention"


# ---------------------------------------------------------------- tokens and logits


def _tokens(inputs: dict[str, ir.Value]) -> tuple[str, ...]:
    """Returns the names of the inputs for each token: integers (batch, sequence), or embeddings beside or for them.

    Positions may have an axis for frames, rows and columns before the batch.
    """
    tokens = tuple(name for name in _OF_TOKENS if name in inputs)
    if not {"input_ids", "inputs_embeds"} & {*tokens}:
        raise _unfit(f"no input is named input_ids; its inputs are {', '.join(inputs)}")
    for name in tokens:
        shape, dtype, is_integer = inputs[name].shape, inputs[name].dtype, 2 in _OF_TOKENS[name]
        is_right = dtype in _INTEGERS if is_integer else _is_floating(inputs[name])
        if not is_right or shape is None or len(shape) not in _OF_TOKENS[name]:
            form = "a matrix of integers (batch, sequence)" if is_integer else "floats (batch, sequence, size)"
            raise _unfit(f"{name} is not {form}")
        length = shape[-1] if is_integer else shape[1]
        if isinstance(length, int):
            raise _unfit(f"{name} has the static length {length}, but a prompt may have any length")
    return tokens


def _logits(outputs: Sequence[ir.Value]) -> ir.Value:
    """Returns the output of logits (batch, sequence, vocabulary)."""
    logits = [v for v in outputs if v.shape is not None and len(v.shape) == 3 and _is_floating(v)]
    logits = [value for value in logits if value.name == "logits"] or logits
    if len(logits) != 1:
        raise _unfit("it has no output of logits (batch, sequence, vocabulary)")
    return logits[0]


def _refuse_other_inputs(inputs: dict[str, ir.Value], known: set[str]) -> None:
    others = [name for name in inputs if name not in known]
    if any(name.endswith(".cumulative_length") for name in others):
        raise _unfit("it takes the number of tokens that a layer with a window or a static cache has seen")
    if others:
        raise _unfit(f"onnxruntime-genai gives no value to the input {others[0]!r}")


def _is_state(value: ir.Value) -> bool:
    """Returns whether the runtime may keep a value of this dtype: floats, or integers of a quantized cache."""
    return _is_floating(value) or value.dtype in (ir.DataType.INT8, ir.DataType.UINT8)


def _is_floating(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()
