"""Checks of arguments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fx_onnx.messages import arguments
from fx_onnx.messages.errors import ArgumentError


class Hostile:
    def __repr__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"), (None, "None"), ("a\nb", r"'a\nb'"), ("\0", r"'\x00'"), (object(), "a object"),
        (Hostile(), "a Hostile"),
        (torch.zeros(2, 2), "a Tensor"), ([Hostile()], "[<Hostile instance at"), ("a" * 100, "'" + "a" * 79 + "..."),
        ([np.zeros((2, 2))], "[array("),
    ],
)  # fmt: skip
def test_shown_is_short_and_on_one_line(value: Any, text: str) -> None:
    assert arguments.shown(value).startswith(text)
    assert len(arguments.shown(value)) < 90


@pytest.mark.parametrize(
    "check",
    [
        lambda: arguments.check_flag("flag", True),
        lambda: arguments.check_flag("flag", np.bool_(False)),
        lambda: arguments.check_flag("flag", None, optional=True),
        lambda: arguments.check_mapping("m", {}, "things"),
        lambda: arguments.check_mapping("m", None, "things"),
        lambda: arguments.check_name("The name", "größe"),
        lambda: arguments.check_dim_name("The name", "batch_size.1"),
        lambda: arguments.check_names("names", None),
        lambda: arguments.check_names("names", (name for name in "ab")),
        lambda: arguments.check_path("path", Path("a")),
    ],
)
def test_right_arguments(check: Callable[[], Any]) -> None:
    assert check() in (None, (), ("a", "b"))


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: arguments.check_flag("flag", 1), "flag must be True or False, not 1."),
        (lambda: arguments.check_flag("flag", "no", optional=True), "flag must be True, False or None, not 'no'."),
        (lambda: arguments.check_flag("flag", None), "flag must be True or False, not None."),
        (lambda: arguments.check_mapping("m", [1], "things"), "m must be a dict of things, not [1]."),
        (lambda: arguments.check_mapping("m", None, "things", optional=False), "m must be a dict of things, not None."),
        (lambda: arguments.check_name("The name", ""), "The name must be a string that is not empty, not ''."),
        (lambda: arguments.check_name("The name", 5), "The name must be a string that is not empty, not 5."),
        (lambda: arguments.check_name("The name", "a\0"), r"The name 'a\x00' contains a NUL character."),
        (lambda: arguments.check_name("The name", "\ud800"), r"The name '\ud800' is not valid Unicode."),
        (lambda: arguments.check_dim_name("The name", "-7"), "The name '-7' is a number;"),
        (lambda: arguments.check_dim_name("The name", "a + b"), "The name 'a + b' is not a name;"),
        (lambda: arguments.check_names("names", "ab"), "names must be a sequence of names, not 'ab'."),
        (lambda: arguments.check_names("names", {"a"}), "names must be a sequence of names, not {'a'}."),
        (lambda: arguments.check_names("names", ["a", 5]), "A name in names must be a string"),
        (lambda: arguments.check_path("path", 5), "path must be a path, not 5."),
        (lambda: arguments.check_path("path", b"a"), "path must be a path, not b'a'."),
    ],
)
def test_wrong_arguments(check: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        check()
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "known", "clause"),
    [
        ("opset", ["args", "opset_version"], "; did you mean 'opset_version'?"),
        ("OpenVINO", ["onnxruntime", "openvino"], "; did you mean 'openvino'?"),
        ("onnxruntime_cuda", ["onnxruntime", "onnxruntime-cuda"], "; did you mean 'onnxruntime-cuda'?"),
        ("dynamic_shape", ["dynamic_shapes", "dynamic_axes"], "; did you mean 'dynamic_shapes'?"),
        ("cuda", ["CUDAExecutionProvider", "CPUExecutionProvider"], "; did you mean 'CUDAExecutionProvider'?"),
        ("toaster", ["openvino"], ""),
        ("", ["openvino"], ""),
        (3, ["openvino"], ""),
    ],
)
def test_did_you_mean(name: Any, known: list[str], clause: str) -> None:
    assert arguments.did_you_mean(name, known) == clause


def test_a_number_has_its_noun() -> None:
    assert arguments.counted(1, "input") == "1 input" and arguments.counted(1200, "input") == "1,200 inputs"
    assert arguments.counted(1, "axis", "axes") == "1 axis" and arguments.counted(0, "axis", "axes") == "0 axes"
