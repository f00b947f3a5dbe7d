"""The operators for which runtimes have kernels: tables in JSON files, which tools/kernel_tables.py writes."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import onnx
from onnx_ir import DataType

__all__ = ["ANY", "DTYPES", "Kernel", "KernelTable", "first_kernels", "kernel_table", "since_version"]

DTYPES = {
    "b8": "bool",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float",
    "f64": "double",
}
"""Short name in the tables → dtype. Complex dtypes and 8-bit floats are left out."""

ANY = frozenset(DTYPES)


@dataclass(frozen=True)
class Kernel:
    """One row of a table.

    Attributes:
        first: the first version of the operator that the kernel computes.
        last: the last version of the operator; None if there is none.
        admitted: the dtypes by type variable of the operator, or by name of an input or output. It is empty if the
            table contains no dtypes.
    """

    first: int
    last: int | None
    admitted: Mapping[str, frozenset[DataType]]

    def computes(self, version: int) -> bool:
        """Returns whether the kernel computes a version of the operator."""
        return self.first <= version and (self.last is None or version <= self.last)


@dataclass(frozen=True)
class KernelTable:
    """The kernels of a runtime for the operators of ONNX's default domain.

    Attributes:
        runtime: the name of the runtime.
        version: the version of the runtime that the table describes.
        date: the day on which the table was written, year-month-day.
        source: where the table is from.
        has_dtypes: whether the table contains the dtypes of the kernels.
        rows: operator → its kernels.
        casts_float16: whether the runtime computes in float32, between Casts of its own, where it has no kernel of
            float16.
    """

    runtime: str
    version: str
    date: str
    source: str
    has_dtypes: bool
    rows: Mapping[str, tuple[Kernel, ...]]
    casts_float16: bool = True

    def kernels(self, op_type: str, version: int) -> tuple[Kernel, ...]:
        """Returns the kernels for an operator; ``version`` is its ``since_version``."""
        return tuple(kernel for kernel in self.rows.get(op_type, ()) if kernel.computes(version))


@functools.cache
def kernel_table(name: str) -> KernelTable:
    """Reads the table of a target, for example ``openvino``.

    Raises:
        FileNotFoundError: the package has no such table.
    """
    text = (resources.files("fx_onnx.passes.legalization") / "kernels" / f"{name}.json").read_text(encoding="utf-8")
    content = json.loads(text)
    rows = {op_type: tuple(map(_kernel, lines)) for op_type, lines in content.pop("operators").items()}
    return KernelTable(**content, rows=rows)


def first_kernels(tables: Sequence[str], op_type: str, version: int) -> tuple[Kernel, ...]:
    """Returns the kernels of the first of the tables that has any for a version of an operator.

    A runtime with several providers runs a node in the first provider that has a kernel for it.
    """
    return next((kernels for name in tables if (kernels := kernel_table(name).kernels(op_type, version))), ())


@functools.cache
def since_version(op_type: str, opset: int) -> int | None:
    """Returns the opset that introduced the operator's version in ``opset``; None if ONNX has no such operator."""
    try:
        return int(onnx.defs.get_schema(op_type, opset).since_version)
    except onnx.defs.SchemaError:
        return None


def _kernel(line: str) -> Kernel:
    """Reads a row: the first version, the last version or "*", then the dtypes of each type variable."""
    first, last, *words = line.split()
    pairs = (word.split("=") for word in words)
    admitted = {variable: _dtypes(names) for variable, names in pairs}
    return Kernel(int(first), None if last == "*" else int(last), admitted)


@functools.cache
def _dtypes(names: str) -> frozenset[DataType]:
    chosen = ANY if names == "any" else names.split(",")
    return frozenset(DataType[DTYPES[name].upper()] for name in chosen)
