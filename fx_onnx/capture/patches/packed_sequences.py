"""What stands for packed sequences while torch captures: padded ones, with the lengths.

A ``PackedSequence`` holds the steps of all sequences one after the other, as many as the lengths add up to, and torch
reads from it in Python how many sequences go on at each step. ONNX's recurrences take padded sequences and their
lengths. So what packs and pads again keeps both, and a recurrence between them is an operator of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

import fx_onnx.core.custom_ops  # noqa: F401  creates the library of our operators, of which this is a part
from fx_onnx.capture.patches.patching import Patches
from fx_onnx.core.symbolic_sizes import same_size

__all__ = ["PATCHES"]

_torch_pack, _torch_pad = rnn.pack_padded_sequence, rnn.pad_packed_sequence


# --- operators --------------------------------------------------------------------------------------------------------

_LIBRARY = torch.library.Library("fx_onnx", "FRAGMENT")  # lives as long as its operators
_OPTIONS = "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional"
_LIBRARY.define(
    f"lstm(Tensor input, Tensor lengths, Tensor[] hx, {_OPTIONS}, bool batch_first) -> (Tensor, Tensor, Tensor)"
)
_OF_ONE_STATE = ("gru", "rnn_tanh", "rnn_relu")
for _name in _OF_ONE_STATE:
    _LIBRARY.define(
        f"{_name}(Tensor input, Tensor lengths, Tensor hx, {_OPTIONS}, bool batch_first) -> (Tensor, Tensor)"
    )


def _kernel(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """torch's own recurrence of packed sequences, for tensors that have values."""

    def run(input: Tensor, lengths: Tensor, hx: Any, *options: Any) -> tuple[Tensor, ...]:
        *others, batch_first = options
        packed = _torch_pack(input, lengths.cpu(), batch_first, enforce_sorted=False)
        states = [hx] if isinstance(hx, Tensor) else hx
        sorted_states = [state[:, packed.sorted_indices] for state in states]
        given = sorted_states[0] if isinstance(hx, Tensor) else sorted_states
        output, *last = getattr(torch, name)(packed.data, packed.batch_sizes, given, *others)
        output = PackedSequence(output, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        padded, _ = _torch_pad(output, batch_first, total_length=input.size(1 if batch_first else 0))
        return (padded, *(state[:, packed.unsorted_indices] for state in last))

    return run


def _sizes(
    input: Tensor, lengths: Tensor, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    states = [hx] if isinstance(hx, Tensor) else hx
    output = input.new_empty([*input.shape[:-1], states[0].shape[-1] * (2 if bidirectional else 1)])
    return (output, *(torch.empty_like(state) for state in states))


for _name in ("lstm", *_OF_ONE_STATE):
    _LIBRARY.impl(_name, _kernel(_name), "CompositeExplicitAutograd")
    torch.library.register_fake(f"fx_onnx::{_name}", _sizes, lib=_LIBRARY)


class _OfLengths(TorchFunctionMode):
    """Recurrences, of sequences of these lengths."""

    def __init__(self, lengths: Tensor) -> None:
        super().__init__()
        self.lengths = lengths

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The operator of ours that stands for a recurrence; any other function as it is."""
        instead = _INSTEAD.get(func)
        return func(*args, **(kwargs or {})) if instead is None else instead(args[0], self.lengths, *args[1:])


_INSTEAD = {getattr(torch, name): getattr(torch.ops.fx_onnx, name) for name in ("lstm", *_OF_ONE_STATE)}


# --- sequences --------------------------------------------------------------------------------------------------------


class _Padded(PackedSequence):
    """Padded sequences; what a packed one holds is computed where it is asked for.

    Attributes:
        padded: (step, sequence, ...), in the order in which they were given.
        lengths: of the sequences, int64.
        enforce_sorted: whether the longest comes first.
        is_zero: whether the steps beyond the lengths are zero.
    """

    padded: Tensor
    lengths: Tensor
    enforce_sorted: bool
    is_zero: bool

    def __new__(cls, padded: Tensor, lengths: Tensor, enforce_sorted: bool, is_zero: bool = False) -> _Padded:
        made: _Padded = tuple.__new__(cls, (None,) * 4)
        made.padded, made.lengths, made.enforce_sorted, made.is_zero = padded, lengths, enforce_sorted, is_zero
        return made

    def __iter__(self) -> Iterator[Any]:
        return iter((self.data, self.batch_sizes, self.sorted_indices, self.unsorted_indices))

    def with_steps(self, padded: Tensor, is_zero: bool = False) -> _Padded:
        """Other sequences of the same lengths."""
        return _Padded(padded, self.lengths, self.enforce_sorted, is_zero)

    def with_data(self, data: Tensor) -> _Padded:
        """Sequences of the same lengths, from all their steps one after the other."""
        places = self._goes_on.reshape(*self._goes_on.shape, *[1] * (data.dim() - 1))
        padded = data.new_zeros([*self._goes_on.shape, *data.shape[1:]]).masked_scatter(places, data)
        return self.with_steps(padded if self.enforce_sorted else padded[:, self.unsorted_indices], is_zero=True)

    def to(self, *args: Any, **kwargs: Any) -> _Padded:
        """Of another dtype, or on another device."""
        return self.with_steps(self.padded.to(*args, **kwargs), self.is_zero)

    @cached_property
    def _goes_on(self) -> Tensor:
        """(step, sequence): whether the sequence, the longest first, has the step."""
        lengths = self.lengths if self.enforce_sorted else self.lengths[self.sorted_indices]
        return torch.arange(self.padded.size(0), device=lengths.device).unsqueeze(1) < lengths

    @cached_property
    def data(self) -> Tensor:
        """The first step of all sequences, then the second one of those that go on."""
        steps = self.padded if self.enforce_sorted else self.padded[:, self.sorted_indices]
        return steps[self._goes_on]

    @cached_property
    def batch_sizes(self) -> Tensor:
        """How many sequences have each step; it remembers whose they are, for another ``PackedSequence`` of them."""
        counts = self._goes_on.sum(1)
        sizes = counts[counts > 0]
        vars(sizes)["padded_sequence"] = self
        return sizes

    @cached_property
    def sorted_indices(self) -> Tensor | None:
        """The sequences by length, the longest first."""
        return None if self.enforce_sorted else self.lengths.argsort(descending=True, stable=True)

    @cached_property
    def unsorted_indices(self) -> Tensor | None:
        """The place of each sequence among them."""
        return None if self.sorted_indices is None else self.sorted_indices.argsort()


def _padded(sequence: Any) -> _Padded | None:
    """The padded form of a packed sequence; None of one that does not come from padded ones."""
    if isinstance(sequence, _Padded):
        return sequence
    if not isinstance(sequence, PackedSequence):
        return None
    source: _Padded | None = getattr(sequence.batch_sizes, "padded_sequence", None)
    return None if source is None else source.with_data(sequence.data)


# --- stand-ins --------------------------------------------------------------------------------------------------------


def _pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """``torch.nn.utils.rnn.pack_padded_sequence``; that the longest comes first where it says so is not checked."""
    lengths = torch.as_tensor(lengths).to(torch.int64)
    return _Padded(input.transpose(0, 1) if batch_first else input, lengths, enforce_sorted)


def _pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: Any = None
) -> tuple[Tensor, Tensor]:
    """``torch.nn.utils.rnn.pad_packed_sequence``: as long as the longest, or ``total_length`` where that is more."""
    source = _padded(sequence)
    if source is None:
        return _torch_pad(sequence, batch_first, padding_value, total_length)
    steps, lengths = source.padded, source.lengths
    if padding_value != 0 or not source.is_zero:
        has = torch.arange(steps.size(0), device=lengths.device).unsqueeze(1) < lengths
        steps = torch.where(has.reshape(*has.shape, *[1] * (steps.dim() - 2)), steps, padding_value)
    if total_length is None:
        longest: Any = lengths.max().item()
        torch._check(longest >= 0)
        torch._check(longest <= steps.size(0))
        steps = steps.narrow(0, 0, longest)
    elif not same_size(total_length, steps.size(0)):
        more = steps.new_full([total_length, *steps.shape[1:]], padding_value)
        steps = torch.cat([steps, more]).narrow(0, 0, total_length)
    return steps.transpose(0, 1) if batch_first else steps, lengths


def _forward(kind: type[nn.RNNBase]) -> Callable[..., Any]:
    """The forward of a recurrence, of padded sequences too."""
    torch_forward = kind.forward

    def forward(self: nn.RNNBase, input: Any, hx: Any = None) -> Any:
        source = _padded(input)
        if source is None:
            return torch_forward(self, input, hx)
        steps = source.padded.transpose(0, 1) if self.batch_first else source.padded
        with _OfLengths(source.lengths):
            output, last = torch_forward(self, steps, hx)
        return source.with_steps(output.transpose(0, 1) if self.batch_first else output, is_zero=True), last

    return forward


PATCHES: Patches = {
    ("torch.nn.utils.rnn", "pack_padded_sequence"): _pack_padded_sequence,
    ("torch.nn.utils.rnn", "pad_packed_sequence"): _pad_packed_sequence,
    ("torch.nn.modules.rnn", "RNN.forward"): _forward(nn.RNN),
    ("torch.nn.modules.rnn", "LSTM.forward"): _forward(nn.LSTM),
    ("torch.nn.modules.rnn", "GRU.forward"): _forward(nn.GRU),
}
