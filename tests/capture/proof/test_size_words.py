"""Conditions on sizes in words: a finding names the condition, the cause and the line."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable

import pytest
from torch import Tensor

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
    assert listed.witness["n"] < 5 and listed.seen.startswith("result 0: the largest difference is ")
    found, _ = captured(lambda x: x.split(5)[1], t(9, 2))
    (listed,) = found.dims.conditions
    assert listed.kind == "bound" and listed.witness["n"] < 6
    assert listed.seen == "the module raises IndexError: tuple index out of range"


def test_a_condition_that_nobody_can_read_is_a_summary() -> None:
    """The table of dims has the expression."""

    def mixed(x: Tensor, y: Tensor) -> Tensor:
        n, n1 = x.shape[0], y.shape[0]
        steps = (((n // 3 + 1) // 2) * 4 + ((n1 // 5 + 1) // 2) * 7) % 11 + (n // 7) * (n1 // 9)
        return x * 2 if steps + max((n + 1) // 2, (n1 + 1) // 3) < 25 else x

    found, (message,) = captured(mixed, t(5, 4), t(6, 4))
    assert len(str(found.dims.conditions[0])) > 100
    assert re.search(r"where a condition on n1? and n1? holds \(is false for n1?=\d+, n1?=\d+; program", message)


@pytest.mark.parametrize(
    ("function", "rows", "condition"),
    [
        (lambda x, y: x.view(-1, 2, 4) + y.view(-1, 1, 4), 3, "n // 2 == n1"),
        (lambda x, y: x[:-2].view(-1, 1, 4) * y.view(-1, 1, 4), 4, "max(0, n - 2) == n1"),
    ],
)
def test_a_broadcast_of_two_expressions_relates_the_dims(
    function: Callable[..., object], rows: int, condition: str
) -> None:
    _, (message,) = captured(function, t(6, 4), t(rows, 4))
    assert message.startswith(f"The exported model may be correct only where {condition}, because the code broadcasts")
    assert message.endswith("[fx-onnx explain FX1204]")
