"""Weights as ONNX tensors that are views of the module's storages; data is copied only when it is written."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from fx_onnx.messages.errors import ArgumentError, OnnxExporterError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.dtypes import is_float, is_sub_byte, onnx_dtype, storage_dtype, torch_dtype, unpacked
from fx_onnx.onnx_model.metadata import OF_STATE_DICT
from fx_onnx.torch_internals.torch_private import FakeTensor, storage_id, unset_fake_temporarily

__all__ = [
    "Along",
    "Cuts",
    "LazyWeight",
    "Weight",
    "as_torch",
    "computed",
    "elementwise",
    "has_data",
    "has_storage",
    "is_of_state_dict",
    "is_subclass",
    "mapped",
    "memory_key",
    "overlap",
    "permuted",
    "plain",
    "rebind",
    "same_memory",
    "stream",
    "tied_names",
    "weight",
]

PIECE_BYTES = 16 * 1024**2
"""A tensor that is computed, not contiguous or not on the CPU is written in pieces of this size."""

Along = Callable[[int], Sequence[int | None] | None]
"""Maps an axis of the result to the axis of each source that must be cut to compute a piece of the result.

An entry of None means that the whole source is needed. None instead of a sequence means that a piece of the result
cannot be computed alone."""
Cuts = Mapping[int, tuple[int, int]]
"""The start and the stop of a piece along each axis that is cut."""


class Weight(tensor_adapters.TorchTensor):
    """An ONNX tensor that is a view of a torch tensor with any strides, on any device, with or without data.

    ``numpy``, ``tobytes`` and ``tofile`` read a contiguous tensor on the CPU in place. A FakeTensor and a tensor on the
    meta device have a name, a shape and a dtype, but reading their data raises OnnxExporterError.

    Attributes:
        raw: the torch tensor.
    """

    raw: torch.Tensor

    def numpy(self) -> npt.NDArray[Any]:
        """Returns the values, in a dtype of ml_dtypes if NumPy has none (bfloat16, float8)."""
        data = self._bytes().view(self.dtype.numpy())
        return data.reshape(self.raw.shape)

    def tobytes(self) -> bytes:
        """Returns a copy of the values in row-major order, little endian."""
        return self._bytes().tobytes()

    def tofile(self, file: IO[bytes]) -> None:
        """Writes the values to a binary file.

        A contiguous tensor on the CPU is written from its storage. Other tensors are copied in pieces, so that a
        transposed weight is never copied as a whole.
        """
        if not has_data(self):
            self._bytes()  # raises
        for piece in _pieces(self.raw.detach()):
            file.write(Weight(piece, self.name)._bytes().data)

    def _bytes(self) -> npt.NDArray[np.uint8]:
        """Returns the values as bytes: a view of the storage if the storage holds them in order.

        Raises:
            OnnxExporterError: the tensor has no data.
        """
        if not has_data(self):
            raise OnnxExporterError(
                f"The weight {self.name!r} has a shape and a dtype but no data (it was a FakeTensor or on the meta "
                "device): give it data with ONNXProgram.apply_weights(state_dict).",
                id=MessageId.WEIGHT_WITHOUT_DATA,
            )
        with unset_fake_temporarily():  # a fake mode of the caller would make fake tensors of real weights
            plain = self.raw.detach().resolve_conj().resolve_neg().cpu().contiguous()
            flat = plain.as_strided((plain.numel(),), (1,))  # a single element may have any stride, but is contiguous
            return flat.view(torch.uint8).numpy()

    def __repr__(self) -> str:
        """Returns the name, the dtype and the shape; printing the values would read the whole weight."""
        return f"{self._repr_base()}(name={self.name!r})"


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields views with the values of a tensor in order: one if no copy is needed, else at most PIECE_BYTES each."""
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

    The values are not cached, so folded weights need no memory. The sources keep their names, so that new weights
    (``rebind``) pass through the function too. torch has no tensors of 2-bit and 4-bit integers, so for these the
    function returns int8 or uint8, which is packed. With ``along``, the tensor is written piece by piece.
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
        reads: Cuts | None = None,
    ) -> None:
        super().__init__(self._compute, dtype=dtype, shape=ir.Shape(shape, frozen=True), name=name)
        self.function = function
        self.sources = tuple(sources)
        self.along = along
        self.reads = reads or {}

    def tofile(self, file: IO[bytes]) -> None:
        """Computes the values and writes them to a binary file, in pieces if ``along`` allows it."""
        for cuts in _cuts(self.shape.numpy(), self.dtype.bitwidth) if self.along is not None else [{}]:
            self._stored(self.part(cuts)).tofile(file)

    def part(self, cuts: Cuts) -> torch.Tensor:
        """Computes the piece of the result that ``cuts`` selects, and as few other values as possible.

        Raises:
            OnnxExporterError: the result does not have the dtype and the shape of this piece.
        """
        plans = {axis: self.along(axis) if self.along is not None else None for axis in cuts}
        wanted: list[dict[int, tuple[int, int]]] = [dict(self.reads) for _ in self.sources]
        sizes = list(self.shape.numpy())
        for axis, plan in plans.items():
            for own, source_axis in zip(wanted, plan or (), strict=False):
                own.update({} if source_axis is None else {source_axis: cuts[axis]})
            sizes[axis] = sizes[axis] if plan is None else cuts[axis][1] - cuts[axis][0]
        with torch.no_grad(), unset_fake_temporarily():
            result = self.function(*map(as_torch, self.sources, wanted))
        if result.dtype != storage_dtype(self.dtype) or list(result.shape) != sizes:
            raise OnnxExporterError(
                f"The computed weight {self.name!r} is {onnx_dtype(result.dtype).name}{list(result.shape)}, "
                f"not {self.dtype.name}{sizes}; this is an error of the pass that made it."
            )
        return _cut(result, {axis: cuts[axis] for axis, plan in plans.items() if plan is None})

    def over(self, sources: Sequence[ir.TensorProtocol]) -> LazyWeight:
        """Returns a tensor that computes the function from other sources; itself if they are the same objects."""
        if all(new is old for new, old in zip(sources, self.sources, strict=True)):
            return self
        given: dict[str, Any] = {"dtype": self.dtype, "shape": self.shape.numpy(), "name": self.name}
        return LazyWeight(self.function, sources, along=self.along, reads=self.reads, **given)

    def transposition(self) -> tuple[ir.TensorProtocol, tuple[int, ...]] | None:
        """Returns (source, order) if this tensor is the source with permuted axes, else None; reads no data."""
        if len(self.sources) != 1 or self.sources[0].dtype != self.dtype or self.sources[0].nbytes != self.nbytes:
            return None
        before, after = self._without_data({})
        axes = list(zip(before.shape, before.stride(), range(before.dim()), strict=True))
        order = []
        for size, stride in zip(after.shape, after.stride(), strict=True):
            source_axis = next((axis for axis in axes if axis[:2] == (size, stride)), None)
            if source_axis is None:
                return None
            axes.remove(source_axis)
            order.append(source_axis[2])
        same = not axes and memory_key(after) == memory_key(before.permute(order))
        return (self.sources[0], tuple(order)) if same else None

    @cached_property
    def run(self) -> tuple[ir.TensorProtocol, int] | None:
        """(source, offset) if it is a piece of consecutive elements of one source, else None; reads no data."""
        if len(self.sources) != 1 or not self.reads or self.sources[0].dtype != self.dtype or self.dtype.bitwidth < 8:
            return None
        before, after = self._without_data(self.reads)
        same = storage_id(after) == storage_id(before) and after.dtype == before.dtype and after.is_contiguous()
        return (self.sources[0], int(after.storage_offset())) if same and not after.is_neg() else None

    def _without_data(self, reads: Cuts) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the only source and the result as tensors on the meta device, which share a storage if they can."""
        with torch.no_grad(), unset_fake_temporarily():
            before = torch.empty(self.sources[0].shape.numpy(), dtype=storage_dtype(self.dtype), device="meta")
            return before, self.function(_cut(before, reads))

    def values(self) -> torch.Tensor:
        """Computes all values; raises what ``part`` raises."""
        return self.part({})

    def _compute(self) -> Weight | ir.PackedTensor[npt.NDArray[np.uint8]]:
        return self._stored(self.values())

    def _stored(self, values: torch.Tensor) -> Weight | ir.PackedTensor[npt.NDArray[np.uint8]]:
        return _packed(values, self.dtype, self.name) if is_sub_byte(self.dtype) else Weight(values, self.name)


def _cuts(sizes: Sequence[int], bits: int) -> Iterator[Cuts]:
    """Yields pieces of about PIECE_BYTES in row-major order; packed elements are cut at whole bytes."""
    inner = [math.prod(sizes[axis:]) * bits for axis in range(len(sizes) + 1)]  # bits per index of the previous axis
    last = next(axis for axis, size in enumerate(inner[1:] or inner) if size <= PIECE_BYTES * 8)
    if inner[0] <= PIECE_BYTES * 8 or (last and inner[last] % 8):
        yield {}
        return
    unit = 1 if bits >= 8 else 4  # four 2-bit elements fill a byte
    step = max(1, PIECE_BYTES * 8 // inner[last + 1] // unit) * unit
    for outer in itertools.product(*map(range, sizes[:last])):
        for start in range(0, sizes[last], step):
            here = {axis: (index, index + 1) for axis, index in enumerate(outer)}
            yield here | {last: (start, min(start + step, sizes[last]))}


def _cut(values: torch.Tensor, cuts: Cuts) -> torch.Tensor:
    for axis, (start, stop) in cuts.items():
        values = values.narrow(axis, start, stop - start)
    return values


def elementwise(shapes: Sequence[Sequence[int]], rank: int) -> Along:
    """Returns ``along`` for an elementwise function of sources that broadcast.

    Args:
        shapes: the shapes of the sources.
        rank: the rank of the result.
    """

    def along(axis: int) -> list[int | None]:
        own = [axis - rank + len(shape) for shape in shapes]
        return [a if a >= 0 and shape[a] != 1 else None for a, shape in zip(own, shapes, strict=True)]

    return along


def permuted(order: Sequence[int]) -> Along:
    """Returns ``along`` for a permutation of the axes."""
    return lambda axis: [order[axis]]


def _packed(values: torch.Tensor, dtype: ir.DataType, name: str | None) -> ir.PackedTensor[npt.NDArray[np.uint8]]:
    """Packs integers of 2 or 4 bits, or codes, the first into the lowest bits (Source: ONNX's IR document)."""
    low, high = (0, 15) if is_float(dtype) else (int(dtype.min), int(dtype.max))
    if values.numel() and (values.min() < low or values.max() > high):
        raise OnnxExporterError(
            f"The weight {name!r} has values outside [{low}, {high}], the range of {dtype.name}; quantize it again."
        )
    per_byte = 8 // dtype.bitwidth
    flat = values.cpu().reshape(-1).view(torch.uint8) & (2**dtype.bitwidth - 1)
    columns = torch.nn.functional.pad(flat, (0, -len(flat) % per_byte)).reshape(-1, per_byte)
    packed = torch.zeros(len(columns), dtype=torch.uint8)
    for position in range(per_byte):
        packed |= columns[:, position] << (position * dtype.bitwidth)
    return ir.PackedTensor(packed.numpy(), dtype, shape=tuple(values.shape), name=name)


def tied_names(tensors: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Returns the groups of names that share one weight."""
    names: dict[Hashable, list[str]] = {}
    for name, tensor in plain(tensors).items():
        names.setdefault(memory_key(tensor), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def weight(tensor: torch.Tensor, name: str) -> ir.TensorProtocol:
    """Returns an ONNX tensor that is a view of a torch tensor. Data is copied only to read or write it.

    Args:
        tensor: a dense tensor, with any strides and on any device; it may be fake or on the meta device.
        name: the initializer's name.

    Raises:
        ArgumentError: ONNX has no element type for the tensor's dtype.
    """
    onnx_dtype(tensor.dtype)  # raises for a dtype that ONNX lacks
    # Not the parameter itself, whose data and dtype change if the module is converted later: ``model.bfloat16()``.
    return Weight(tensor.detach(), name)


def is_subclass(value: object) -> bool:
    """Returns whether it is a tensor subclass made of other tensors, such as torchao's quantized tensors."""
    return isinstance(value, torch.Tensor) and hasattr(value, "__tensor_flatten__")


def plain(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the tensors by name, with a subclass replaced by its parts: ``fc.weight.qdata``, ``fc.weight.scale``."""
    by_name: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if is_subclass(tensor):
            parts, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
            by_name.update(plain({f"{name}.{part}": getattr(tensor, part) for part in parts}))
        else:
            by_name[name] = tensor
    return by_name


def real_view(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor as the model holds it: a complex one as a real view, a packed one of 4-bit floats as bytes."""
    return torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else unpacked(tensor)


def computed(
    function: Callable[..., torch.Tensor],
    *sources: ir.TensorProtocol,
    dtype: ir.DataType,
    shape: Sequence[int],
    name: str | None = None,
    along: Along | None = None,
    reads: Cuts | None = None,
) -> ir.TensorProtocol:
    """Returns the tensor ``function(*sources)``, which is computed each time its values are read.

    For example, ``computed(torch.t, w, dtype=w.dtype, shape=(n, m), name="fc.weight")`` is a transposed weight.

    Args:
        function: takes one torch tensor per source, and must not mutate it. It takes and returns int8 or uint8 tensors
            for integers of 2 or 4 bits.
        sources: ONNX tensors, which may be computed too.
        dtype: the element type of the result.
        shape: the sizes of the result.
        name: the initializer's name, if it is known already.
        along: tells how to compute a piece, so that a large tensor is never in memory as a whole.
        reads: the piece of each source that the function takes; None gives it whole sources.
    """
    return LazyWeight(function, sources, dtype=dtype, shape=shape, name=name, along=along, reads=reads)


def as_torch(tensor: ir.TensorProtocol, cuts: Cuts | None = None) -> torch.Tensor:
    """Returns the values of an ONNX tensor as a torch tensor, which shares memory if possible; do not mutate it.

    Integers of 2 and 4 bits become int8 or uint8. With ``cuts``, only that piece is computed or read.

    Raises:
        ArgumentError: torch has no dtype for the element type.
        OnnxExporterError: the tensor has no data.
    """
    cuts = cuts or {}
    if isinstance(tensor, Weight):
        if not has_data(tensor):
            tensor.numpy()  # raises
        return _cut(tensor.raw.detach(), cuts)
    if isinstance(tensor, LazyWeight):
        return tensor.part(cuts)
    if is_sub_byte(tensor.dtype):
        numbers, kind = tensor.numpy(), "u1" if storage_dtype(tensor.dtype) == torch.uint8 else "i1"
        values = numbers.view("u1") if is_float(tensor.dtype) else numbers.astype(kind)
        return _cut(torch.from_numpy(values), cuts)
    dtype = torch_dtype(tensor.dtype)
    array = mapped(tensor) if cuts and isinstance(tensor, ir.ExternalTensor) else tensor.numpy()
    array = array[_slices(cuts)] if cuts else array
    values = np.ascontiguousarray(array)
    if not values.flags.writeable:  # torch warns of read-only memory, and a mapped file may disappear
        values = values.copy()
    return torch.from_numpy(values.reshape(-1).view(np.uint8)).view(dtype).reshape(array.shape)


def mapped(tensor: ir.ExternalTensor) -> npt.NDArray[Any]:
    """Returns the values as a memory map of their file, so that only the parts that are read use memory."""
    data = np.memmap(tensor.path, np.uint8, "r", offset=tensor.offset or 0, shape=(tensor.nbytes,))
    return data.view(tensor.dtype.numpy()).reshape(tensor.shape.numpy())


def _slices(cuts: Cuts) -> tuple[slice, ...]:
    return tuple(slice(*cuts.get(axis, (None, None))) for axis in range(max(cuts) + 1))


def stream(tensor: ir.TensorProtocol, file: Any) -> None:
    """Writes the values in row-major order, little endian, to an object with ``write``; avoids a copy if possible."""
    if isinstance(tensor, (Weight, LazyWeight, ir.ExternalTensor)):
        tensor.tofile(file)
    elif isinstance(tensor, ir.Tensor) and tensor.dtype.bitwidth >= 8 and sys.byteorder == "little":
        file.write(np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data)
    else:
        file.write(tensor.tobytes())


def has_data(tensor: ir.TensorProtocol) -> bool:
    """Returns whether the values can be read. Fake and meta tensors, and tensors computed from them, have no values."""
    if isinstance(tensor, Weight):
        return not isinstance(tensor.raw, FakeTensor) and tensor.raw.device.type != "meta"
    if isinstance(tensor, LazyWeight):
        return all(has_data(source) for source in tensor.sources)
    return True


def rebind(tensor: ir.TensorProtocol, state_dict: Mapping[str, torch.Tensor], used: set[str]) -> ir.TensorProtocol:
    """Returns a copy of a tensor that holds new data, or that is computed from weights with new data.

    Args:
        tensor: an ONNX tensor.
        state_dict: the new data by the name of the weight.
        used: receives the names of the weights that were replaced.

    Raises:
        ArgumentError: the new data has another shape or dtype.
    """
    if isinstance(tensor, LazyWeight):  # it may have the name of its source, so only the sources count
        return tensor.over([rebind(source, state_dict, used) for source in tensor.sources])
    if tensor.name is None or tensor.name not in state_dict:
        return tensor
    new = weight(real_view(state_dict[tensor.name]), tensor.name)
    new.meta.update(tensor.meta)
    if new.dtype != tensor.dtype or new.shape != tensor.shape:
        raise ArgumentError(
            f"The new weight {tensor.name!r} is {new.dtype.name}{list(new.shape)}, "
            f"but the model holds {tensor.dtype.name}{list(tensor.shape)}.",
            id=MessageId.REPLACED_WEIGHT,
        )
    used.add(tensor.name)
    return new


def is_of_state_dict(tensor: ir.TensorProtocol | None) -> bool:
    """Returns whether a tensor is an entry of the exported module's state_dict, or is computed from one."""
    if isinstance(tensor, LazyWeight):
        return any(map(is_of_state_dict, tensor.sources))
    return bool(getattr(tensor, "meta", {}).get(OF_STATE_DICT))


def memory_key(tensor: torch.Tensor) -> Hashable:
    """Returns a key that is equal for two living tensors if and only if they view the same memory in the same way.

    Fake and meta tensors have no address, but they share storages as the real tensors would.
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
    """Returns whether two tensors are the same weight, such as tied embeddings."""
    return memory_key(first) == memory_key(second)


def has_storage(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is a view of one storage: a dense tensor that is not made of others."""
    return tensor.layout == torch.strided and not is_subclass(tensor)


def overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Returns whether two living tensors have an element in common. Both must have a storage."""
    if not first.numel() or not second.numel():
        return False
    if storage_id(first) != storage_id(second):
        return False
    (start, stop), (other_start, other_stop) = _bytes(first), _bytes(second)
    if start >= other_stop or other_start >= stop:
        return False
    if first.dtype != second.dtype:
        return True
    return bool(torch.isin(_places(first), _places(second)).any())  # columns of a matrix alternate in memory


def _bytes(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns where the first byte of a tensor is in its storage, and where the byte after its last one is."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.storage_offset()) * tensor.itemsize
    return start, start + (int(last) + 1) * tensor.itemsize


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the place of each element in the storage of a tensor."""
    with unset_fake_temporarily():
        places = torch.full((), int(tensor.storage_offset()), dtype=torch.int64, device="cpu")
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            places = places.unsqueeze(-1) + torch.arange(size, device="cpu") * stride
        return places
