"""Reads which operators two runtimes compute from their compiled libraries, which need a GPU or Windows to run.

tools/kernel_tables.py writes the tables. Neither runtime publishes its table in a package.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["DirectMLKernel", "directml_kernels", "tensorrt_operators"]

# ---------------------------------------------------------------- TensorRT

_SUPPORTS_OPERATOR = 2
"""The place of supportsOperator among the virtual functions of nvonnxparser::IParser, after parse and parseFromFile."""


def tensorrt_operators(library: str, names: Iterable[str]) -> list[str]:
    """Returns the operators among ``names`` for which a TensorRT ONNX parser has a rule.

    The parser asks its network and its logger for nothing that matters here, so both are objects whose virtual
    functions return 0. It needs no GPU.

    Raises:
        ValueError: the library answers what no parser answers, so it has another layout.
    """
    parser = ctypes.CDLL(library)
    nothing = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: None)
    address = ctypes.cast(nothing, ctypes.c_void_p).value
    functions = (ctypes.c_void_p * 256)(*[address] * 256)
    stub = (ctypes.c_void_p * 64)(*[ctypes.addressof(functions)] * 64)
    implementation = (ctypes.c_void_p * 64)(*[ctypes.addressof(functions)] * 64)
    stub[1] = ctypes.addressof(implementation)
    create = parser.createNvOnnxParser_INTERNAL
    create.restype, create.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    made = create(ctypes.addressof(stub), ctypes.addressof(stub), parser.getNvOnnxParserVersion())
    table = ctypes.cast(made, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
    ask = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_char_p)(table[_SUPPORTS_OPERATOR] or 0)
    if not ask(made, b"Relu") or not ask(made, b"Conv") or ask(made, b"NoSuchOperator"):
        raise ValueError(f"{library} does not answer as nvonnxparser::IParser::supportsOperator")
    return [name for name in names if ask(made, name.encode())]


# ---------------------------------------------------------------- DirectML

DirectMLKernel = tuple[str, int, dict[str, frozenset[str]]]
"""An operator of ONNX's default domain, the version in which it last changed, and the dtypes by type variable."""

_ENTRY = 160
_DTYPES = {
    1: "f32",
    4: "u8",
    5: "i8",
    6: "u16",
    7: "i16",
    8: "i32",
    9: "i64",
    11: "b8",
    12: "f16",
    13: "f64",
    14: "u32",
    15: "u64",
}
"""The dtype of each bit of ONNX Runtime's SupportedTensorDataTypes. No table has strings or 4-bit numbers."""
_RELU = "Relu", 14, {"T": frozenset({"f32", "f16", "i8", "i16", "i32"})}
"""A kernel as docs/OperatorKernels.md of ONNX Runtime publishes it, by which the layout is checked."""


class _Image:
    """The sections of a Windows library."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        header = struct.unpack_from("<I", data, 0x3C)[0]
        count, size = struct.unpack_from("<H12xH", data, header + 6)
        self.base = struct.unpack_from("<Q", data, header + 48)[0]
        places = (header + 24 + size + 40 * i for i in range(count))
        self.sections = [struct.unpack_from("<III", data, place + 12) for place in places]

    def offset(self, address: int) -> int:
        """Returns where the byte of an address is in the file; -1 if it is in no section."""
        relative = address - self.base
        for start, size, place in self.sections:
            if start <= relative < start + size:
                return int(place + relative - start)
        return -1

    def integer(self, place: int) -> int:
        """Returns the 8 bytes at a place as a number."""
        return int(struct.unpack_from("<Q", self.data, place)[0])

    def text(self, place: int) -> str | None:
        """Returns the text to which the pointer at a place points; None if it points to none."""
        start = self.offset(self.integer(place))
        end = self.data.find(b"\0", start, start + 64) if start >= 0 else -1
        found = self.data[start:end] if end >= 0 else b"?"
        return found.decode() if re.fullmatch(rb"[A-Za-z][\w.]*|", found) else None


def directml_kernels(wheel: Path) -> Iterator[DirectMLKernel]:
    """Yields the kernels of the DirectML provider from the registrations in the wheel of onnxruntime-directml.

    The registrations are an array in the constants of onnxruntime.dll. An entry begins with the name, the version and
    the domain; the numbers and addresses of type variables and of their dtypes follow.

    Raises:
        ValueError: there is no such array, or it has another layout.
    """
    with zipfile.ZipFile(wheel) as files:
        image = _Image(files.read("onnxruntime/capi/onnxruntime.dll"))
    kernels = list(_entries(image))
    if _RELU not in kernels:
        raise ValueError(f"{wheel} has no registrations in the layout of ONNX Runtime 1.24")
    yield from kernels


def _entries(image: _Image) -> Iterator[DirectMLKernel]:
    for place in _longest_run(image):
        if image.text(place + 16) == "":
            labels, masks = (_array(image, place + at) for at in (80, 96))
            names = [image.text(each) or "" for each in labels]
            masks = [image.integer(each) for each in masks]
            admitted = {
                name: frozenset(dtype for bit, dtype in _DTYPES.items() if mask >> bit & 1)
                for name, mask in zip(names, masks, strict=True)
            }
            yield image.text(place) or "", image.integer(place + 8) & 0xFFFFFFFF, admitted


def _array(image: _Image, place: int) -> list[int]:
    """Returns the places of the elements of an array of which an entry has the length and the address."""
    length, start = image.integer(place) & 0xFFFFFFFF, image.offset(image.integer(place + 8))
    return [start + 8 * i for i in range(length)]


def _longest_run(image: _Image) -> list[int]:
    """Returns the places of the longest array of registrations."""

    def is_entry(place: int) -> bool:
        if place + _ENTRY > len(image.data):
            return False
        version = image.integer(place + 8) & 0xFFFFFFFF
        return 0 < version < 100 and bool(image.text(place)) and image.text(place + 16) is not None

    longest: list[int] = []
    seen: set[int] = set()
    for _, size, place in image.sections:
        for at in range(place, place + size - _ENTRY, 8):
            if at not in seen and image.base < image.integer(at) < image.base + (1 << 32) and is_entry(at):
                run = list(itertools.takewhile(is_entry, itertools.count(at, _ENTRY)))
                seen.update(run)
                longest = max(longest, run, key=len)
    return longest
