"""Parses an ONNX file with NVIDIA's parser, builds an engine of TensorRT for RTX, and prints what both said.

    python fx_onnx/backends/tensorrt_engine.py FOLDER MODEL.onnx < PROFILE.json > RESULT.json

It is a program of its own that imports nothing of fx_onnx, because the libraries may end the process. FOLDER has the
libraries of the Python package onnxruntime-ep-nv-tensorrt-rtx-cu13. They need no GPU: without further settings, an
engine is for GPUs of compute capability 8.6 and above. The profile is a JSON object: the name of each input with a
dynamic dim → its smallest, its usual and its largest shape.

The libraries have a C++ interface only, so this file calls the virtual methods by their positions in the tables of
version 1.7.1.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

VERSION = "1.7.1"
"""The version of TensorRT for RTX to which the positions of the methods belong."""

_Pointer = ctypes.c_void_p
_Log = ctypes.CFUNCTYPE(None, _Pointer, ctypes.c_int, ctypes.c_char_p)
_Other = ctypes.CFUNCTYPE(ctypes.c_long, _Pointer)
_WARNING = 2  # the severities are 0 internal error, 1 error, 2 warning, 3 information, 4 verbose
_KERNEL = re.compile(rb"function=\{ name=(\S+)")


class _Shape(ctypes.Structure):
    """nvinfer1::Dims."""

    _fields_ = (("rank", ctypes.c_int32), ("sizes", ctypes.c_int64 * 8))

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(len(sizes), (ctypes.c_int64 * 8)(*sizes))


class _Object:
    """A C++ object whose methods are called by their positions in its virtual table.

    Args:
        address: the object.
        is_interface: whether it is an interface of TensorRT, which holds the object with the methods behind its own
            virtual table. The parser's objects have the methods themselves.
    """

    def __init__(self, address: Any, *, is_interface: bool = True) -> None:
        self.address = ctypes.cast(address, ctypes.POINTER(_Pointer))[1] if is_interface else address
        table = ctypes.cast(self.address, ctypes.POINTER(_Pointer))[0]
        self._table = ctypes.cast(table, ctypes.POINTER(_Pointer))

    def call(self, position: int, result: Any, *arguments: tuple[Any, Any]) -> Any:
        """Calls a method. An argument is its type and its value."""
        function = ctypes.CFUNCTYPE(result, _Pointer, *(kind for kind, _ in arguments))(self._table[position])
        return function(self.address, *(value for _, value in arguments))


class _Logger:
    """nvinfer1::ILogger: keeps the errors and warnings."""

    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []
        self._log, other = _Log(self._keep), _Other(lambda _: 0)
        self._other = other
        self._table = (_Pointer * 5)(*[ctypes.cast(other, _Pointer)] * 4, ctypes.cast(self._log, _Pointer))
        self.object = (_Pointer * 1)(ctypes.addressof(self._table))

    def _keep(self, _: Any, severity: int, text: bytes) -> None:
        if severity <= _WARNING:
            self.said.append((severity, text.decode(errors="replace")))


def _problems(parser: _Object) -> list[dict[str, str]]:
    """Returns the errors of the parser: the name and the operator of a node, and what is wrong with it."""
    problems = []
    for index in range(parser.call(3, ctypes.c_int)):
        error = _Object(parser.call(4, _Pointer, (ctypes.c_int, index)), is_interface=False)
        operator, node, text = ((error.call(at, ctypes.c_char_p) or b"").decode(errors="replace") for at in (7, 6, 1))
        problems.append({"node": node, "operator": operator, "text": text})
    return problems


def compile_file(folder: str, path: str, profile: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, Any]:
    """Returns whether the file is parsed, the problems, the size of the engine in bytes, and the names of its kernels.

    The size is 0 if there is no engine.
    """
    runtime = ctypes.CDLL(f"{folder}/libtensorrt_rtx.so.{VERSION}", ctypes.RTLD_GLOBAL)
    onnx = ctypes.CDLL(f"{folder}/libtensorrt_onnxparser_rtx.so.{VERSION}", ctypes.RTLD_GLOBAL)
    runtime.createInferBuilder_INTERNAL.restype = onnx.createNvOnnxParser_INTERNAL.restype = _Pointer
    logger = _Logger()
    builder = _Object(runtime.createInferBuilder_INTERNAL(logger.object, runtime.getInferLibVersion()))
    network = builder.call(6, _Pointer, (ctypes.c_uint32, 0))  # createNetworkV2
    version = onnx.getNvOnnxParserVersion()
    parser = _Object(onnx.createNvOnnxParser_INTERNAL(_Pointer(network), logger.object, version), is_interface=False)
    is_parsed = parser.call(1, ctypes.c_bool, (ctypes.c_char_p, path.encode()), (ctypes.c_int, _WARNING))
    problems, engine = _problems(parser), b""
    if is_parsed:
        engine = _build(builder, network, profile)
    return {
        "parsed": bool(is_parsed),
        "problems": problems,
        "errors": [text for severity, text in logger.said if severity < _WARNING],
        "bytes": len(engine),
        "kernels": sorted({name.decode() for name in _KERNEL.findall(engine)}),
    }


def _build(builder: _Object, network: Any, profile: Mapping[str, Sequence[Sequence[int]]]) -> bytes:
    """Returns the serialized engine; empty if it cannot be built."""
    settings = builder.call(5, _Pointer)  # createBuilderConfig
    if profile:
        ranges = builder.call(7, _Pointer)  # createOptimizationProfile
        for name, shapes in profile.items():
            for which, sizes in enumerate(shapes):
                shape = (ctypes.POINTER(_Shape), ctypes.byref(_Shape(sizes)))
                name_of_input = (ctypes.c_char_p, name.encode())
                _Object(ranges).call(2, ctypes.c_bool, name_of_input, (ctypes.c_int, which), shape)
        _Object(settings).call(23, ctypes.c_int, (_Pointer, ranges))  # addOptimizationProfile
    memory = builder.call(11, _Pointer, (_Pointer, network), (_Pointer, settings))  # buildSerializedNetwork
    if not memory:
        return b""
    host = _Object(memory)
    return ctypes.string_at(host.call(2, _Pointer), host.call(3, ctypes.c_size_t))


if __name__ == "__main__":
    json.dump(compile_file(sys.argv[1], sys.argv[2], json.load(sys.stdin)), sys.stdout)
