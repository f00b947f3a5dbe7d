"""The options that describe inputs and dynamic dims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fx_onnx import ArgumentError
from fx_onnx.cli.example_inputs import parse_dynamic_dims, parse_inputs, random_tensor


@pytest.mark.parametrize(
    ("option", "dtype", "shape"),
    [
        ("x=float32[2,8]", torch.float32, (2, 8)),
        ("x=int64[3]", torch.int64, (3,)),
        ("x=bool[2, 2]", torch.bool, (2, 2)),
        ("x=float16[]", torch.float16, ()),
        ("x=bfloat16[0]", torch.bfloat16, (0,)),
        ("x=complex64[2]", torch.complex64, (2,)),
    ],
)
def test_a_tensor(option: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = parse_inputs([option])["x"]
    assert (tensor.dtype, tuple(tensor.shape)) == (dtype, shape)


def test_literals_and_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    found = parse_inputs([f"x=@{tmp_path / 'x.npy'}", "n=3", "flag=True", "name='a'", "sizes=(2, 3)"])
    assert found.pop("x").tolist() == [0, 1, 2]
    assert found == {"n": 3, "flag": True, "name": "a", "sizes": (2, 3)}


def test_random_integers_are_small_indices() -> None:
    assert set(random_tensor(torch.int32, [64]).tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["x"], "must be NAME=DTYPE"),
        (["1x=float32[2]"], "must be NAME=DTYPE"),
        (["x=float31[2]"], "no dtype named 'float31'"),
        (["x=nn[2]"], "no dtype named 'nn'"),
        (["x=float32[2,-1]"], "is not a tensor"),
        (["x=open('f')"], "is not a tensor"),
        (["x=float32[99999999,99999999]"], "more than"),
        (["x=@no.npy"], "no.npy is not a NumPy file"),
        (["x=float32[1]", "x=float32[2]"], "'x' twice"),
    ],
)
def test_a_wrong_input_is_refused(options: list[str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse_inputs(options)


def test_an_array_of_objects_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ArgumentError, match="is not a NumPy file of one array"):
        parse_inputs([f"x=@{tmp_path / 'x.npy'}"])
    (tmp_path / "x.npy").write_text("no array")
    with pytest.raises(ArgumentError, match=r"is not a NumPy file of one array\. "):
        parse_inputs([f"x=@{tmp_path / 'x.npy'}"])


_HEADER = b"\x93NUMPY\x01\x00%c\x00"
_HUGE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,), }\n"


@pytest.mark.parametrize("damaged", [b"", b"PK\x03\x04xx", _HEADER % 3 + b"((\n", _HEADER % len(_HUGE) + _HUGE])
def test_a_damaged_array_is_refused(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(damaged)
    with pytest.raises(ArgumentError, match="is not a NumPy file of one array"):
        parse_inputs([f"x=@{tmp_path / 'x.npy'}"])


def test_dynamic_dims() -> None:
    found = parse_dynamic_dims(["x:0=batch,1=length", "y:-1=width"], ["x", "y", "z"])
    assert found == {"x": {0: "batch", 1: "length"}, "y": {-1: "width"}, "z": None}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("x", "must be NAME:AXIS=DIM"),
        ("x:0", "must be NAME:AXIS=DIM"),
        ("x:first=batch", "must be NAME:AXIS=DIM"),
        ("y:0=batch", r"the inputs are input\. "),
        ("inptu:0=batch", r"the inputs are input; did you mean 'input'\?"),
        ("x:0=2", "is a number"),
        ("x:0=a,0=b", "axis 0 of 'x' twice"),
    ],
)
def test_a_wrong_dim_is_refused(option: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as refused:
        parse_dynamic_dims([option], ["input" if "input" in message else "x"])
    assert refused.value.id == "FX1019"
