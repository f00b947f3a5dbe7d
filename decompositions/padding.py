"""Decompositions of paddings that repeat elements into reads at clamped, reflected or wrapped positions."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._sizes import at_least, is_known
from fx_onnx.decompositions.registry import aten, decomposes

_MODES = ("reflect", "replicate", "circular", "constant")


def _reflect(position: Tensor, size: int) -> Tensor:
    """Returns the positions reflected at the first and the last element."""
    return (size - 1) - ((size - 1) - position.abs()).abs()


def _replicate(position: Tensor, size: int) -> Tensor:
    """Returns the positions clamped to the axis."""
    return position.clamp(0, size - 1)


def _circular(position: Tensor, size: int) -> Tensor:
    """Returns the positions modulo the size."""
    return torch.remainder(position, at_least(size, 1))  # ONNX Runtime refuses a divisor of 0, also for no position


_POSITION: dict[str, Callable[[Tensor, int], Tensor]] = {
    "reflect": _reflect,
    "replicate": _replicate,
    "circular": _circular,
}


def _pad(self: Tensor, pad: Sequence[int], mode: str) -> Tensor:
    """Returns self, read at the positions -left … size + right - 1 along each padded axis; a negative padding crops.

    Circular padding crops before it wraps.
    """
    for axis in range(len(pad) // 2):
        left, right = pad[2 * axis], pad[2 * axis + 1]
        if is_known(left, 0) and is_known(right, 0):
            continue
        dim = self.dim() - 1 - axis
        if mode == "circular":
            self = aten.slice.Tensor(self, dim, -torch.sym_min(left, 0), self.shape[dim] + torch.sym_min(right, 0))
            left, right = (torch.sym_max(pad, 0) for pad in (left, right))
        size = self.shape[dim]
        positions = torch.arange(-left, size + right, device=self.device)
        self = self.index_select(dim, _POSITION[mode](positions, size))
    return self


@decomposes(aten.pad.default)
def pad(self: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Returns self, padded in the given mode."""
    if mode == "constant":
        return torch.constant_pad_nd(self, pad, 0 if value is None else value)
    return _pad(self, pad, mode)


@decomposes(aten._pad_enum.default)
def pad_enum(self: Tensor, pad: Sequence[int], mode: int, value: float | None = None) -> Tensor:
    """Returns self, padded in the mode with the given number."""
    return torch.nn.functional.pad(self, pad, _MODES[mode], value)


@decomposes(aten._pad_circular.default)
def pad_circular(self: Tensor, pad: Sequence[int]) -> Tensor:
    """Returns self, padded with the elements of the other end."""
    return torch.nn.functional.pad(self, pad, "circular")


@decomposes(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Returns self, padded with its reflection; the edge is not repeated."""
    return _pad(self, padding, "reflect")


@decomposes(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Returns self, padded with its edges."""
    return _pad(self, padding, "replicate")


@decomposes(aten.pad_sequence.default)
def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Returns the stacked sequences, each padded to the length of the longest one.

    torch's own decomposition compares symbolic lengths, and so adds guards.
    """
    longest = sequences[0].shape[0]
    for sequence in sequences[1:]:
        longest = torch.sym_max(longest, sequence.shape[0])
    padded = []
    for sequence in sequences:
        # Padding by longest - length would need a guard, because torch cannot prove that this size is not negative.
        padding = sequence.new_full([longest, *sequence.shape[1:]], padding_value)
        if padding_side == "right":
            padded.append(torch.cat([sequence, padding]).narrow(0, 0, longest))
        else:
            padded.append(torch.cat([padding, sequence]).narrow(0, sequence.shape[0], longest))
    return torch.stack(padded, 0 if batch_first else 1)
