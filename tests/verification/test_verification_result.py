"""The texts, tables and properties of a result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fx_onnx.messages.errors import ArgumentError, VerificationError
from fx_onnx.verification.tensor_comparison import Difference
from fx_onnx.verification.verification_result import Cause, SizeResult, Verification, by_module

GOOD = Difference("y", "float32", (2, 3), 1e-6, 5e-7, 0, 1e-4, "")
BAD = Difference("z", "float32", (2,), 1.0, 0.5, 0, 1e-4, "the largest difference is 1", "a.b")
NOTED = replace(GOOD, name="n", note="its error is small")


def test_a_result_without_differences() -> None:
    result = Verification((GOOD, NOTED), (SizeResult("batch=3", (GOOD,)),), ("The sizes batch=1 are not compared.",))
    assert result.ok and result.max_rel == 5e-7
    result.check()
    assert str(result).splitlines() == [
        "The ONNX program agrees with the PyTorch module (2 outputs, at batch=3).",
        "'n' is inaccurate in eager: its error is small.",
        "The sizes batch=1 are not compared.",
    ]
    assert Verification(()).ok and Verification(()).max_rel == 0


def test_a_result_with_a_difference_at_another_size() -> None:
    cause = Cause("translation", "first differs at a.b (B) = aten.gelu: max 1 (0.0001 allowed)")
    result = Verification((GOOD,), (SizeResult("batch=3", (BAD,)), SizeResult("batch=4", (), "it fails")), (), cause)
    assert not result.ok and [each.ok for each in result.sizes] == [False, False]
    message = (
        "The ONNX program differs from the PyTorch module in 'z' at batch=3: the largest difference is 1; "
        "the sizes batch=4: it fails."
    )
    reason = "First differs at a.b (B) = aten.gelu: max 1 (0.0001 allowed)."
    with pytest.raises(VerificationError) as error:
        result.check()
    assert error.value.message == f"{message} {reason}"
    assert str(result) == f"{message}\n{reason}"


def test_tables() -> None:
    result = Verification((GOOD,), (SizeResult("batch=3", (NOTED,)),), _compare_values=lambda: (GOOD, BAD))
    assert result.table().splitlines() == [
        "sizes    value  type           max abs  allowed  max rel  verdict",
        "given    y      float32[2, 3]  1e-06    0.0001   5e-07    agrees",
        "batch=3  n      float32[2, 3]  1e-06    0.0001   5e-07    inaccurate in eager",
    ]
    assert [line.split()[0] for line in result.table("values").splitlines()] == ["module", "-", "a.b"]
    assert list(result.modules) == ["", "a.b"] and "the largest difference is 1" in result.table("modules")
    with pytest.raises(ArgumentError, match="'outputs', 'values' or 'modules', not 'all'"):
        result.table("all")


def test_the_worst_of_each_module() -> None:
    worse = replace(BAD, max_rel=0.7)
    assert by_module([GOOD, BAD, worse, GOOD]) == {"": GOOD, "a.b": worse}


def test_a_repl_shows_the_text() -> None:
    for count, head in ((0, "0 outputs"), (1, "1 output)"), (2, "2 outputs")):
        result = Verification((GOOD,) * count)
        assert repr(result) == str(result)
        assert head in repr(result)
