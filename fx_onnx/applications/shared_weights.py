"""Stores equal weights of several ONNX files once: the later files refer to the data file of the first."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import onnx_ir as ir

__all__ = ["share_weights"]

_ALIGNMENT = 4096
"""Data begins at multiples of the size of a page, so that a runtime may map it."""


def share_weights(files: Sequence[Path]) -> None:
    """Replaces equal external data of files in one folder by references to the first that has it.

    Args:
        files: ONNX files whose weights are in external data.
    """
    known: dict[bytes, tuple[str, int]] = {}
    for file in files:
        model = ir.load(file)
        values = [value for graph in model.graphs() for value in graph.initializers.values()]
        tensors = [(value, value.const_value) for value in values if isinstance(value.const_value, ir.ExternalTensor)]
        if not tensors:
            continue
        old = Path(file.parent, tensors[0][1].location)
        new = old.with_name(f"{old.name}.new")
        with new.open("wb") as data:
            for value, tensor in tensors:
                location, offset = _place(tensor, old.name, data, known)
                value.const_value = ir.ExternalTensor(
                    location, offset, tensor.length, tensor.dtype, shape=tensor.shape, name=tensor.name,
                    base_dir=file.parent,
                )  # fmt: skip
            size = data.tell()
        for _, tensor in tensors:
            tensor.release()
        ir.save(model, file)
        new.replace(old)
        if not size:
            old.unlink()


def _place(
    tensor: ir.ExternalTensor, name: str, data: BinaryIO, known: dict[bytes, tuple[str, int]]
) -> tuple[str, int]:
    """Returns the file and the offset of a tensor's bytes, which are written to a data file if none has them."""
    content = tensor.tobytes()
    key = hashlib.sha256(content).digest()
    if key not in known:
        data.write(bytes(-data.tell() % _ALIGNMENT))
        known[key] = (name, data.tell())
        data.write(content)
    return known[key]
