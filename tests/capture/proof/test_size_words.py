"""Conditions on sizes in words: a finding names the condition, the cause and the line."""

from __future__ import annotations

import linecache
from collections.abc import Callable

import pytest

from tests.capture.proof.test_size_proof import BRANCH, above, below, captured, logarithm, parity, rotated
from tests.capture.sample_modules import t


@pytest.mark.parametrize(
    ("function", "condition", "cause"),
    [
        (above, "n >= 5", BRANCH),
        (below, "n <= 7", BRANCH),
        (parity, "n % 2 == 1", BRANCH),
        (logarithm, "float(n) + 1.0 == 6.0", "converts a size to a Python number"),
        (rotated, "n // 2 == 2", "gives the argument 'k' of rot90 a size, which is a constant"),
    ],
)
def test_a_finding_names_the_condition_and_the_line(
    function: Callable[..., object], condition: str, cause: str
) -> None:
    found, (message,) = captured(function, t(5, 4))
    line = function.__code__.co_firstlineno + 1
    file = function.__code__.co_filename
    place = f"({file}:{line}: {linecache.getline(file, line).strip()})"
    assert message.startswith(f"The exported model is correct only where {condition}, because the code {cause}")
    assert f"{place}. [fx-onnx explain FX1202]" in message
    (listed,) = found.dims.conditions
    assert (listed.condition, listed.kind, listed.place) == (condition, "finding", place)
    assert listed.dims == ("n",)


def test_the_words_of_one_excluded_size() -> None:
    _, (message,) = captured(lambda x: x + 1 if x.shape[0] == 8 else x - 1, t(5, 4))
    assert message.startswith(
        f"The exported model is wrong where n == 8, because the code {BRANCH.replace('other sizes', 'this size')}"
    )
    assert message.endswith("[fx-onnx explain FX1203]")


def test_a_condition_has_a_witness() -> None:
    found, _ = captured(above, t(5, 4))
    (listed,) = found.dims.conditions
    assert listed.witness["n"] < 5 and listed.seen == "result 0 differs"
    found, _ = captured(lambda x: x.split(5)[1], t(9, 2))
    (listed,) = found.dims.conditions
    assert listed.kind == "bound" and listed.witness["n"] < 6
    assert listed.seen == "the module raises IndexError: tuple index out of range"
