"""Paddings that repeat the tensor, as reads at clamped, reflected or wrapped positions."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._sizes import is_known
from fx_onnx.decompositions.registry import aten, decomposes

_MODES = ("reflect", "replicate", "circular", "constant")


def _reflect(position: Tensor, size: int) -> Tensor:
    return (size - 1) - ((size - 1) - position.abs()).abs()


def _replicate(position: Tensor, size: int) -> Tensor:
    return position.clamp(0, size - 1)


def _circular(position: Tensor, size: int) -> Tensor:
    return torch.remainder(position, size)


_POSITION: dict[str, Callable[[Tensor, int], Tensor]] = {
    "reflect": _reflect,
    "replicate": _replicate,
    "circular": _circular,
}


def _crops(size: int) -> bool:
    return isinstance(size, int) and size < 0


def _pad(self: Tensor, pad: Sequence[int], mode: str) -> Tensor:
    """self read, along each padded axis, at the positions -left .. size + right; a negative pad reads fewer.

    Circular padding alone crops before it wraps.
    """
    if mode == "circular" and any(_crops(size) for size in pad):
        self = torch.constant_pad_nd(self, [size if _crops(size) else 0 for size in pad])
        pad = [0 if _crops(size) else size for size in pad]
    for axis in range(len(pad) // 2):
        left, right = pad[2 * axis], pad[2 * axis + 1]
        if is_known(left, 0) and is_known(right, 0):
            continue
        dim = self.dim() - 1 - axis
        size = self.shape[dim]
        positions = torch.arange(-left, size + right, device=self.device)
        self = self.index_select(dim, _POSITION[mode](positions, size))
    return self


@decomposes(aten.pad.default)
def pad(self: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Padding by mode."""
    if mode == "constant":
        return torch.constant_pad_nd(self, pad, 0 if value is None else value)
    return _pad(self, pad, mode)


@decomposes(aten._pad_enum.default)
def pad_enum(self: Tensor, pad: Sequence[int], mode: int, value: float | None = None) -> Tensor:
    """Padding by the number of a mode."""
    return torch.nn.functional.pad(self, pad, _MODES[mode], value)


@decomposes(aten._pad_circular.default)
def pad_circular(self: Tensor, pad: Sequence[int]) -> Tensor:
    """Padding with the other end."""
    return torch.nn.functional.pad(self, pad, "circular")


@decomposes(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Padding with the reflection, the edge not repeated."""
    return _pad(self, padding, "reflect")


@decomposes(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Padding with the edge."""
    return _pad(self, padding, "replicate")


@decomposes(aten.pad_sequence.default)
def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Every sequence with padding up to the longest, one beside the other; torch's own asks which is the longest."""
    longest = sequences[0].shape[0]
    for sequence in sequences[1:]:
        longest = torch.sym_max(longest, sequence.shape[0])
    padded = []
    for sequence in sequences:  # cut off what is too much: that the padding is not less than nothing is not seen
        padding = sequence.new_full([longest, *sequence.shape[1:]], padding_value)
        if padding_side == "right":
            padded.append(torch.cat([sequence, padding]).narrow(0, 0, longest))
        else:
            padded.append(torch.cat([padding, sequence]).narrow(0, sequence.shape[0], longest))
    return torch.stack(padded, 0 if batch_first else 1)
