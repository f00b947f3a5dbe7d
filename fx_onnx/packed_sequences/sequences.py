"""Sequences of a batch that the forward packs, so that their steps are one tensor, whose size depends on data.

A ``PackedSequence`` holds the steps of all sequences in one tensor, whose size is the sum of the lengths. torch reads
in Python how many sequences are active at each step, which depends on values. ONNX's RNN, LSTM and GRU take padded
sequences and their lengths instead. Here ``pack_padded_sequence`` keeps both, ``pad_packed_sequence`` returns them, and
an RNN, LSTM or GRU in between becomes a custom operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from fx_onnx.capture.patches.data_conditions import Redirected
from fx_onnx.capture.patches.dynamic_sizes import empty_recurrence_results
from fx_onnx.capture.patches.layers import torch_pack, torch_pad
from fx_onnx.sizes.symbolic_sizes import same_size
from fx_onnx.torch_internals.custom_ops import define_operator

__all__ = ["pack_padded_sequence", "pad_packed_sequence", "recurrent_forward"]


# --- operators --------------------------------------------------------------------------------------------------------

_OPTIONS = "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional"
_ONE_STATE = f"(Tensor input, Tensor lengths, Tensor hx, {_OPTIONS}, bool batch_first) -> (Tensor, Tensor)"
_TWO_STATES = f"(Tensor input, Tensor lengths, Tensor[] hx, {_OPTIONS}, bool batch_first) -> (Tensor, Tensor, Tensor)"
_SCHEMAS = {"lstm": _TWO_STATES, "gru": _ONE_STATE, "rnn_tanh": _ONE_STATE, "rnn_relu": _ONE_STATE}


def _eager_kernel(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """Returns a kernel for real tensors, which packs the sequences and calls torch's own operator."""

    def run(input: Tensor, lengths: Tensor, hx: Any, *options: Any) -> tuple[Tensor, ...]:
        *torch_options, batch_first = options
        packed = torch_pack(input, lengths.cpu(), batch_first, enforce_sorted=False)
        states = [hx] if isinstance(hx, Tensor) else hx
        sorted_states = [state[:, packed.sorted_indices] for state in states]
        initial = sorted_states[0] if isinstance(hx, Tensor) else sorted_states
        output, *last = getattr(torch, name)(packed.data, packed.batch_sizes, initial, *torch_options)
        output = PackedSequence(output, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        padded, _ = torch_pad(output, batch_first, total_length=input.size(1 if batch_first else 0))
        return (padded, *(state[:, packed.unsorted_indices] for state in last))

    return run


def _fake_kernel(
    input: Tensor, lengths: Tensor, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    return empty_recurrence_results(input, hx, bidirectional)


for _name, _schema in _SCHEMAS.items():
    define_operator(f"{_name}{_schema}", _eager_kernel(_name), _fake_kernel)


def _with_lengths(lengths: Tensor) -> Redirected:
    """Returns a mode that redirects torch's RNN, LSTM and GRU functions to the operators above."""
    operators = {getattr(torch, name): getattr(torch.ops.fx_onnx, name) for name in _SCHEMAS}
    return Redirected(
        {function: lambda input, *rest, own=own: own(input, lengths, *rest) for function, own in operators.items()}
    )


# --- sequences --------------------------------------------------------------------------------------------------------


class _PaddedSequence(PackedSequence):
    """A PackedSequence that holds the padded tensor; the fields of a packed one are computed on access.

    Attributes:
        padded: The sequences (step, sequence, ...), in the order in which they were given.
        lengths: The lengths of the sequences, int64.
        enforce_sorted: Whether the sequences are ordered by length, the longest first.
        is_zero: Whether the steps beyond the lengths are zero.
    """

    padded: Tensor
    lengths: Tensor
    enforce_sorted: bool
    is_zero: bool

    def __new__(cls, padded: Tensor, lengths: Tensor, enforce_sorted: bool, is_zero: bool = False) -> _PaddedSequence:
        made: _PaddedSequence = tuple.__new__(cls, (None,) * 4)
        made.padded, made.lengths, made.enforce_sorted, made.is_zero = padded, lengths, enforce_sorted, is_zero
        return made

    def __iter__(self) -> Iterator[Any]:
        return iter((self.data, self.batch_sizes, self.sorted_indices, self.unsorted_indices))

    def with_steps(self, padded: Tensor, is_zero: bool = False) -> _PaddedSequence:
        """Returns sequences of the same lengths with other steps."""
        return _PaddedSequence(padded, self.lengths, self.enforce_sorted, is_zero)

    def with_data(self, data: Tensor) -> _PaddedSequence:
        """Returns sequences of the same lengths, from the data of a packed sequence."""
        mask = self._is_active.reshape(*self._is_active.shape, *[1] * (data.dim() - 1))
        padded = data.new_zeros([*self._is_active.shape, *data.shape[1:]]).masked_scatter(mask, data)
        return self.with_steps(padded if self.enforce_sorted else padded[:, self.unsorted_indices], is_zero=True)

    def to(self, *args: Any, **kwargs: Any) -> _PaddedSequence:
        """Converts the dtype or moves to a device, as ``Tensor.to`` does."""
        return self.with_steps(self.padded.to(*args, **kwargs), self.is_zero)

    @cached_property
    def _is_active(self) -> Tensor:
        """A mask (step, sequence) of the steps that exist; the longest sequence is first."""
        lengths = self.lengths if self.enforce_sorted else self.lengths[self.sorted_indices]
        return torch.arange(self.padded.size(0), device=lengths.device).unsqueeze(1) < lengths

    @cached_property
    def data(self) -> Tensor:
        """The first step of all sequences, then the second step of those that have one, and so on."""
        steps = self.padded if self.enforce_sorted else self.padded[:, self.sorted_indices]
        return steps[self._is_active]

    @cached_property
    def batch_sizes(self) -> Tensor:
        """The number of sequences that have each step.

        The tensor has a reference to this object, so that a new ``PackedSequence`` that is created from it finds its
        lengths.
        """
        counts = self._is_active.sum(1)
        sizes = counts[counts > 0]
        vars(sizes)["padded_sequence"] = self
        return sizes

    @cached_property
    def sorted_indices(self) -> Tensor | None:
        """The indices that sort the sequences by length, the longest first; None if they are already sorted."""
        return None if self.enforce_sorted else self.lengths.argsort(descending=True, stable=True)

    @cached_property
    def unsorted_indices(self) -> Tensor | None:
        """The inverse permutation of ``sorted_indices``."""
        return None if self.sorted_indices is None else self.sorted_indices.argsort()


def _as_padded(sequence: Any) -> _PaddedSequence | None:
    """Returns the padded form of a packed sequence; None if it was not packed by the patched function."""
    if isinstance(sequence, _PaddedSequence):
        return sequence
    if not isinstance(sequence, PackedSequence):
        return None
    source: _PaddedSequence | None = getattr(sequence.batch_sizes, "padded_sequence", None)
    return None if source is None else source.with_data(sequence.data)


# --- replacements -----------------------------------------------------------------------------------------------------


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Replaces ``pack_padded_sequence``; with ``enforce_sorted`` the order of the lengths is not checked."""
    lengths = torch.as_tensor(lengths).to(torch.int64)
    return _PaddedSequence(input.transpose(0, 1) if batch_first else input, lengths, enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: Any = None
) -> tuple[Tensor, Tensor]:
    """Replaces ``pad_packed_sequence``: pads to the longest sequence, or to ``total_length`` if it is given."""
    source = _as_padded(sequence)
    if source is None:
        return torch_pad(sequence, batch_first, padding_value, total_length)
    steps, lengths = source.padded, source.lengths
    if padding_value != 0 or not source.is_zero:
        mask = torch.arange(steps.size(0), device=lengths.device).unsqueeze(1) < lengths
        steps = torch.where(mask.reshape(*mask.shape, *[1] * (steps.dim() - 2)), steps, padding_value)
    if total_length is None:
        longest: Any = lengths.max().item()
        torch._check(longest >= 0)
        torch._check(longest <= steps.size(0))
        steps = steps.narrow(0, 0, longest)
    elif not same_size(total_length, steps.size(0)):
        padding = steps.new_full([total_length, *steps.shape[1:]], padding_value)
        steps = torch.cat([steps, padding]).narrow(0, 0, total_length)
    return steps.transpose(0, 1) if batch_first else steps, lengths


def recurrent_forward(torch_forward: Callable[..., Any], self: nn.RNNBase, packed: PackedSequence, hx: Any) -> Any:
    """Runs an RNN, LSTM or GRU module on packed sequences, by its forward for padded ones."""
    source = _as_padded(packed)
    if source is None:
        return torch_forward(self, packed, hx)
    steps = source.padded.transpose(0, 1) if self.batch_first else source.padded
    with _with_lengths(source.lengths):
        output, last = torch_forward(self, steps, hx)
    return source.with_steps(output.transpose(0, 1) if self.batch_first else output, is_zero=True), last
