"""The program that builds engines; it needs the package of TensorRT for RTX."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fx_onnx
from fx_onnx.backends import tensorrt_engine
from fx_onnx.backends.tensorrt_compiler import libraries
from tests.exporting import exported

needs_package = pytest.mark.skipif(
    libraries() is None, reason="onnxruntime-ep-nv-tensorrt-rtx-cu13 0.5.0 is not installed"
)


def said(program: fx_onnx.ONNXProgram, folder: Path, profile: object = None) -> dict[str, object]:
    program.save(folder / "model.onnx")
    command = [sys.executable, tensorrt_engine.__file__, str(libraries()), str(folder / "model.onnx")]
    text = subprocess.run(command, input=json.dumps(profile or {}), capture_output=True, text=True, check=True).stdout
    return dict(json.loads(text))


@needs_package
def test_an_engine_and_its_kernels(tmp_path: Path) -> None:
    result = said(exported(lambda x: torch.softmax(x + 1, 1), torch.ones(8, 8)), tmp_path)
    assert result["parsed"] and result["bytes"] and result["kernels"] and not result["problems"]


@needs_package
def test_what_the_parser_says(tmp_path: Path) -> None:
    program = exported(lambda x: torch.zeros(4).index_add(0, torch.tensor([1, 1]), x), torch.ones(2))
    result = said(program, tmp_path)
    assert not result["parsed"] and not result["bytes"]
    assert [(row["node"], row["operator"]) for row in result["problems"]] == [
        (program.model.graph[-1].name, "ScatterND")
    ]


@needs_package
def test_a_profile_is_for_dynamic_dims(tmp_path: Path) -> None:
    program = exported(torch.relu, torch.ones(2, 3), dynamic_shapes=({0: "n"},))
    name = program.model.graph.inputs[0].name
    assert not said(program, tmp_path)["bytes"]
    assert said(program, tmp_path, {name: [[1, 3], [2, 3], [8, 3]]})["bytes"]


def test_methods_are_called_by_their_positions() -> None:
    """An object is a pointer to the table of its methods, and an interface has an object as its second field."""
    add = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(lambda _, number: number + 1)
    table = (ctypes.c_void_p * 2)(None, ctypes.cast(add, ctypes.c_void_p))
    made = (ctypes.c_void_p * 1)(ctypes.addressof(table))
    interface = (ctypes.c_void_p * 2)(None, ctypes.addressof(made))
    for address, is_interface in ((made, False), (interface, True)):
        found = tensorrt_engine._Object(ctypes.addressof(address), is_interface=is_interface)
        assert found.call(1, ctypes.c_int, (ctypes.c_int, 4)) == 5
