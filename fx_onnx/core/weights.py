"""Weights as ONNX tensors that are views of the module's own storages; nothing is copied until it is written."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from fx_onnx.core.dtypes import carrier, is_sub_byte, is_unsigned, onnx_dtype, torch_dtype
from fx_onnx.core.errors import ArgumentError, OnnxExporterError
from fx_onnx.core.torch_private import FakeTensor, storage_id, unset_fake_temporarily

__all__ = [
    "Along",
    "Cuts",
    "LazyWeight",
    "Weight",
    "as_torch",
    "computed",
    "elementwise",
    "has_data",
    "is_subclass",
    "memory_key",
    "permuted",
    "plain",
    "rebind",
    "same_memory",
    "stream",
    "weight",
]


PIECE_BYTES = 16 * 1024**2
"""What is computed, not contiguous, or not on the CPU, is made in pieces of this size to be written."""

Along = Callable[[int], Sequence[int | None] | None]
"""Which axis of each source to cut for a piece of the result cut along an axis; None for a source that is needed whole,
and None for all where a piece cannot be computed by itself."""
Cuts = Mapping[int, tuple[int, int]]
"""Where a piece starts and stops along each axis that is cut."""


class Weight(tensor_adapters.TorchTensor):
    """An ONNX tensor over a torch tensor's own storage, of any strides, on any device, with or without data.

    ``raw`` is that torch tensor. ``numpy``, ``tobytes`` and ``tofile`` read it; a contiguous tensor on the CPU is read
    in place. Of a FakeTensor or a tensor on the meta device only name, shape and dtype can be read.
    """

    raw: torch.Tensor

    def numpy(self) -> npt.NDArray[Any]:
        """The values, in ml_dtypes' types where NumPy has none (bfloat16, float8)."""
        data = self._bytes().view(self.dtype.numpy())
        return data.reshape(self.raw.shape)

    def tobytes(self) -> bytes:
        """A copy of the values, row by row, little endian."""
        return self._bytes().tobytes()

    def tofile(self, file: IO[bytes]) -> None:
        """Writes the values to a binary file: straight from the storage where that is contiguous and on the CPU, else
        in pieces, so that a transposed weight is never copied whole.
        """
        if not has_data(self):
            self._bytes()  # says so
        for piece in _pieces(self.raw.detach()):
            file.write(Weight(piece, self.name)._bytes().data)

    def _bytes(self) -> npt.NDArray[np.uint8]:
        """The values as bytes: a view of the storage wherever it already holds them in order."""
        if not has_data(self):
            raise OnnxExporterError(
                f"The weight {self.name!r} has a shape and a dtype but no data (it was a FakeTensor or on the meta "
                "device): give it data with ONNXProgram.apply_weights(state_dict)."
            )
        with unset_fake_temporarily():  # a fake mode left open by the caller would make fakes of real weights
            plain = self.raw.detach().resolve_conj().resolve_neg().cpu().contiguous()
            flat = plain.as_strided((plain.numel(),), (1,))  # one element is contiguous whatever its stride says
            return flat.view(torch.uint8).numpy()

    def __repr__(self) -> str:
        """Name, dtype and shape; printing the values would read (and for a GPU copy) the whole weight."""
        return f"{self._repr_base()}(name={self.name!r})"


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Views that hold the values of ``tensor`` in order: one where no copy is needed, else of PIECE_BYTES at most."""
    whole = tensor.nbytes <= PIECE_BYTES or (tensor.is_contiguous() and tensor.device.type == "cpu")
    if whole or tensor.is_conj() or tensor.is_neg():
        yield tensor
    elif (rows := PIECE_BYTES * len(tensor) // tensor.nbytes) > 0:
        yield from (tensor[start : start + rows] for start in range(0, len(tensor), rows))
    else:
        for row in tensor:
            yield from _pieces(row)


class LazyWeight(ir.LazyTensor):
    """A tensor of known shape and dtype that a function computes from other tensors each time it is read.

    It is not cached: a saved model streams it and forgets it, so folding costs no memory. ``sources`` stay named, so
    that new weights (``rebind``) flow through what was folded. Integers of 2 and 4 bits, which torch has no tensors of,
    are packed from the int8 or uint8 tensor that the function gives. With ``along`` it is written piece by piece.
    """

    def __init__(
        self,
        function: Callable[..., torch.Tensor],
        sources: Sequence[ir.TensorProtocol],
        *,
        dtype: ir.DataType,
        shape: Sequence[int],
        name: str | None,
        along: Along | None = None,
    ) -> None:
        super().__init__(self._compute, dtype=dtype, shape=ir.Shape(shape, frozen=True), name=name)
        self.function = function
        self.sources = tuple(sources)
        self.along = along

    def tofile(self, file: IO[bytes]) -> None:
        """Computes the values and writes them to a binary file, in pieces where they can be computed so."""
        for cuts in _cuts(self.shape.numpy(), self.dtype.bitwidth) if self.along is not None else [{}]:
            self._stored(self.part(cuts)).tofile(file)

    def part(self, cuts: Cuts) -> torch.Tensor:
        """The values from start to stop along some axes; as few others are computed as can be.

        Raises:
            OnnxExporterError: they have another dtype or shape than this tensor has there, or do not fit in its bits.
        """
        plans = {axis: self.along(axis) if self.along is not None else None for axis in cuts}
        wanted: list[dict[int, tuple[int, int]]] = [{} for _ in self.sources]
        sizes = list(self.shape.numpy())
        for axis, plan in plans.items():
            for own, place in zip(wanted, plan or (), strict=False):
                own.update({} if place is None else {place: cuts[axis]})
            sizes[axis] = sizes[axis] if plan is None else cuts[axis][1] - cuts[axis][0]
        with torch.no_grad(), unset_fake_temporarily():
            result = self.function(*map(as_torch, self.sources, wanted))
        if result.dtype != carrier(self.dtype) or list(result.shape) != sizes:
            raise OnnxExporterError(
                f"The computed weight {self.name!r} came out as {onnx_dtype(result.dtype).name}{list(result.shape)}, "
                f"not as {self.dtype.name}{sizes}; this is an error of the pass that made it."
            )
        return _cut(result, {axis: cuts[axis] for axis, plan in plans.items() if plan is None})

    def over(self, sources: Sequence[ir.TensorProtocol]) -> LazyWeight:
        """The same function of other sources; itself where they are its own."""
        if all(new is old for new, old in zip(sources, self.sources, strict=True)):
            return self
        shape = self.shape.numpy()
        return LazyWeight(self.function, sources, dtype=self.dtype, shape=shape, name=self.name, along=self.along)

    def transposition(self) -> tuple[ir.TensorProtocol, tuple[int, ...]] | None:
        """(source, order) if the values are those of the source with its axes in that order; no data is read."""
        if len(self.sources) != 1 or self.sources[0].dtype != self.dtype or self.sources[0].nbytes != self.nbytes:
            return None
        shape, dtype = self.sources[0].shape.numpy(), carrier(self.dtype)
        with torch.no_grad(), unset_fake_temporarily():
            before = torch.empty(shape, dtype=dtype, device="meta")
            after: torch.Tensor = self.function(before)
        axes = list(zip(before.shape, before.stride(), range(before.dim()), strict=True))
        order = []
        for size, stride in zip(after.shape, after.stride(), strict=True):
            found = next((axis for axis in axes if axis[:2] == (size, stride)), None)
            if found is None:
                return None
            axes.remove(found)
            order.append(found[2])
        same = not axes and memory_key(after) == memory_key(before.permute(order))
        return (self.sources[0], tuple(order)) if same else None

    def values(self) -> torch.Tensor:
        """The values, computed now.

        Raises:
            OnnxExporterError: they have another dtype or shape than this tensor, or do not fit in its bits.
        """
        return self.part({})

    def _compute(self) -> Weight | ir.PackedTensor[npt.NDArray[np.uint8]]:
        return self._stored(self.values())

    def _stored(self, values: torch.Tensor) -> Weight | ir.PackedTensor[npt.NDArray[np.uint8]]:
        return _packed(values, self.dtype, self.name) if is_sub_byte(self.dtype) else Weight(values, self.name)


def _cuts(sizes: Sequence[int], bits: int) -> Iterator[Cuts]:
    """Pieces of about PIECE_BYTES, in the order of the elements; of whole bytes, if an element takes less than one."""
    inner = [math.prod(sizes[axis:]) * bits for axis in range(len(sizes) + 1)]  # bits of one index of the axis before
    last = next(axis for axis, size in enumerate(inner[1:] or inner) if size <= PIECE_BYTES * 8)
    if inner[0] <= PIECE_BYTES * 8 or (last and inner[last] % 8):
        yield {}
        return
    each = 1 if bits >= 8 else 4  # four elements of two bits are a byte
    step = max(1, PIECE_BYTES * 8 // inner[last + 1] // each) * each
    for place in itertools.product(*map(range, sizes[:last])):
        for start in range(0, sizes[last], step):
            here = {axis: (index, index + 1) for axis, index in enumerate(place)}
            yield here | {last: (start, min(start + step, sizes[last]))}


def _cut(values: torch.Tensor, cuts: Cuts) -> torch.Tensor:
    for axis, (start, stop) in cuts.items():
        values = values.narrow(axis, start, stop - start)
    return values


def elementwise(shapes: Sequence[Sequence[int]], rank: int) -> Along:
    """``along`` of a function that computes each element from those at its place, of sources that broadcast."""

    def along(axis: int) -> list[int | None]:
        own = [axis - rank + len(shape) for shape in shapes]
        return [a if a >= 0 and shape[a] != 1 else None for a, shape in zip(own, shapes, strict=True)]

    return along


def permuted(order: Sequence[int]) -> Along:
    """``along`` of a permutation of the axes."""
    return lambda axis: [order[axis]]


def _packed(values: torch.Tensor, dtype: ir.DataType, name: str | None) -> ir.PackedTensor[npt.NDArray[np.uint8]]:
    """Integers of 2 or 4 bits, the first in the lowest bits of a byte (Source: ONNX's IR document)."""
    low, high = int(dtype.min), int(dtype.max)
    if values.numel() and (values.min() < low or values.max() > high):
        raise OnnxExporterError(f"The weight {name!r} has values outside [{low}, {high}], which {dtype.name} holds.")
    each = 8 // dtype.bitwidth
    flat = values.cpu().reshape(-1).view(torch.uint8) & (2**dtype.bitwidth - 1)
    columns = torch.nn.functional.pad(flat, (0, -len(flat) % each)).reshape(-1, each)
    packed = torch.zeros(len(columns), dtype=torch.uint8)
    for place in range(each):
        packed |= columns[:, place] << (place * dtype.bitwidth)
    return ir.PackedTensor(packed.numpy(), dtype, shape=tuple(values.shape), name=name)


def weight(tensor: torch.Tensor, name: str) -> ir.TensorProtocol:
    """The ONNX tensor ``name`` over the storage of ``tensor``; nothing is copied, now or when it is saved.

    Args:
        tensor: any dense tensor: a Parameter, a strided view, on any device, fake, or on the meta device.
        name: the initializer's name.

    Raises:
        ArgumentError: ONNX has no element type for the tensor's dtype.
    """
    onnx_dtype(tensor.dtype)  # our own sentence for a dtype that ONNX lacks
    return Weight(tensor, name)


def is_subclass(value: object) -> bool:
    """Whether it is a tensor made of others, as torchao's quantised ones are (PyTorch's protocol for subclasses)."""
    return isinstance(value, torch.Tensor) and hasattr(value, "__tensor_flatten__")


def plain(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors, by name; in the place of a subclass those inside it: ``fc.weight.qdata``, ``fc.weight.scale``."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if is_subclass(tensor):
            parts, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
            found.update(plain({f"{name}.{part}": getattr(tensor, part) for part in parts}))
        else:
            found[name] = tensor
    return found


def real_view(tensor: torch.Tensor) -> torch.Tensor:
    """What a model holds of a tensor: of a complex one the parts along a last axis of 2, in the same memory."""
    return torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor


def computed(
    function: Callable[..., torch.Tensor],
    *sources: ir.TensorProtocol,
    dtype: ir.DataType,
    shape: Sequence[int],
    name: str | None = None,
    along: Along | None = None,
) -> ir.TensorProtocol:
    """The tensor ``function(*sources)``, computed whenever its values are read and not before.

    ``computed(torch.t, w, dtype=w.dtype, shape=(n, m), name="fc.weight")`` is a transposed weight.

    Args:
        function: takes one torch tensor per source, which it must not write to; returns ``dtype`` and ``shape``.
        sources: ONNX tensors, which may be computed ones themselves.
        dtype: the element type of the result.
        shape: the sizes of the result.
        name: the initializer's name, if it is known already.
        along: how to compute a piece of it, so that a large one is never in memory whole.

    For a ``dtype`` of 2 or 4 bits the function gives int8 or uint8, and takes them for such sources.
    """
    return LazyWeight(function, sources, dtype=dtype, shape=shape, name=name, along=along)


def as_torch(tensor: ir.TensorProtocol, cuts: Cuts | None = None) -> torch.Tensor:
    """The values of any ONNX tensor as a torch tensor, of the same memory where that is possible; do not write to it.

    Integers of 2 and 4 bits come as int8 or uint8. With ``cuts`` only that piece of them is computed, or read.

    Raises:
        ArgumentError: torch has no dtype for its element type.
        OnnxExporterError: it has no data.
    """
    cuts = cuts or {}
    if isinstance(tensor, Weight):
        if not has_data(tensor):
            tensor.numpy()  # says so
        return _cut(tensor.raw.detach(), cuts)
    if isinstance(tensor, LazyWeight):
        return tensor.part(cuts)
    if is_sub_byte(tensor.dtype):
        values = tensor.numpy().astype("u1" if is_unsigned(tensor.dtype) else "i1")
        return _cut(torch.from_numpy(values), cuts)
    dtype = torch_dtype(tensor.dtype)
    found = _mapped(tensor) if cuts and isinstance(tensor, ir.ExternalTensor) else tensor.numpy()
    if cuts:
        found = found[_slices(cuts)]
    values = np.ascontiguousarray(found)
    if not values.flags.writeable:  # torch warns of undefined behaviour then, and a file mapping may go away
        values = values.copy()
    return torch.from_numpy(values.reshape(-1).view(np.uint8)).view(dtype).reshape(found.shape)


def _mapped(tensor: ir.ExternalTensor) -> npt.NDArray[Any]:
    """The values in their file, of which only those that are looked at come into memory, for as long."""
    data = np.memmap(tensor.path, np.uint8, "r", offset=tensor.offset or 0, shape=(tensor.nbytes,))
    return data.view(tensor.dtype.numpy()).reshape(tensor.shape.numpy())


def _slices(cuts: Cuts) -> tuple[slice, ...]:
    return tuple(slice(*cuts.get(axis, (None, None))) for axis in range(max(cuts) + 1))


def stream(tensor: ir.TensorProtocol, file: Any) -> None:
    """Writes the values, row by row and little endian, to anything with ``write``, without a copy where that can be."""
    if isinstance(tensor, (Weight, LazyWeight, ir.ExternalTensor)):
        tensor.tofile(file)
    elif isinstance(tensor, ir.Tensor) and tensor.dtype.bitwidth >= 8 and sys.byteorder == "little":
        file.write(np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data)
    else:
        file.write(tensor.tobytes())


def has_data(tensor: ir.TensorProtocol) -> bool:
    """Whether the values can be read: false of FakeTensors, of the meta device, and of what is computed from them."""
    if isinstance(tensor, Weight):
        return not isinstance(tensor.raw, FakeTensor) and tensor.raw.device.type != "meta"
    if isinstance(tensor, LazyWeight):
        return all(has_data(source) for source in tensor.sources)
    return True


def rebind(tensor: ir.TensorProtocol, state_dict: Mapping[str, torch.Tensor], used: set[str]) -> ir.TensorProtocol:
    """``tensor`` with its data, or that of the weights it is computed from, taken from ``state_dict`` by name.

    Args:
        tensor: any ONNX tensor.
        state_dict: new data by weight name.
        used: receives the names that found a place.

    Raises:
        ArgumentError: the new data has another shape or dtype.
    """
    if isinstance(tensor, LazyWeight):  # its own name may be that of the weight it was folded from: only sources count
        return tensor.over([rebind(source, state_dict, used) for source in tensor.sources])
    if tensor.name is None or tensor.name not in state_dict:
        return tensor
    new = weight(real_view(state_dict[tensor.name]), tensor.name)
    if new.dtype != tensor.dtype or new.shape != tensor.shape:
        raise ArgumentError(
            f"The new weight {tensor.name!r} is {new.dtype.name}{list(new.shape)}, "
            f"but the model holds {tensor.dtype.name}{list(tensor.shape)}."
        )
    used.add(tensor.name)
    return new


def memory_key(tensor: torch.Tensor) -> Hashable:
    """Equal for two tensors exactly when they read the same memory in the same way; valid while both are alive.

    Fake tensors and the meta device have no address, but their storages are shared where the real ones would be.
    """
    return (
        storage_id(tensor),
        tensor.storage_offset(),
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def same_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors are one weight, as tied embeddings are."""
    return memory_key(first) == memory_key(second)
