"""Sizes and conditions are written as Python or in words, with the user's names."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy import functions as torch_functions

from fx_onnx.sizes.size_text import (
    expression_text,
    shape_text,
    simple_condition,
    sizes_in_words,
    with_offsets_inside,
    without_symbols,
)
from fx_onnx.sizes.trial_sizes import condition_of

a, b = sympy.symbols("s1 s17", integer=True, positive=True)
LABELS = {"s1": "batch", "s17": "x.shape[1]"}


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (torch_functions.FloorDiv(a + 1, 2), "(batch + 1) // 2"),
        (torch_functions.Mod(a, 8) + 1, "(batch % 8) + 1"),
        (torch_functions.BitwiseFn_bitwise_and(a, 3) + 1, "(batch & 3) + 1"),
        (torch_functions.BitwiseFn_bitwise_or(a, 3) * 2, "2*(batch | 3)"),
        (sympy.Eq(torch_functions.Mod(a * b, 3), 0), "(batch*x.shape[1]) % 3 == 0"),
        (torch_functions.TruncToInt(0.7 * torch_functions.ToFloat(a)), "int(0.7*float(batch))"),
        (torch_functions.Max(a, b), "max(batch, x.shape[1])"),
        (torch_functions.IntTrueDiv(a, b), "batch / x.shape[1]"),
        (torch_functions.OpaqueUnaryFn_sqrt(a), "sqrt(batch)"),
        (2 * torch_functions.FloorDiv(a, 2), "2*(batch // 2)"),
        (sympy.Symbol("u0") + 1, "a size that depends on data + 1"),
        (sympy.Ge(a, 5), "batch >= 5"),
        (sympy.And(b < 9, a > 2), "batch > 2 and x.shape[1] < 9"),
        (sympy.Or(sympy.Eq(b, 9), a > 2), "(batch > 2) or (x.shape[1] == 9)"),
        (sympy.Or(sympy.And(a > 2, b > 2), sympy.Eq(a, 1)), "(batch == 1) or (batch > 2 and x.shape[1] > 2)"),
        (sympy.Not(sympy.And(a > 2, b > 2), evaluate=False), "not (batch > 2 and x.shape[1] > 2)"),
        (sympy.Ne(a, 0, evaluate=False), "batch != 0"),
    ],
)
def test_expressions(expression: sympy.Basic, text: str) -> None:
    assert expression_text(expression, LABELS) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (torch_functions.FloorDiv(a - 1, 8) + 1, "(batch + 7) // 8"),
        (2 * torch_functions.FloorDiv(a - 1, 8) + 2, "2*((batch + 7) // 8)"),
        (2 * torch_functions.FloorDiv(a - 1, 8) + 1, "2*((batch - 1) // 8) + 1"),
        (torch_functions.FloorDiv(torch_functions.FloorDiv(a - 1, 2) - 1, 2) + 1, "(batch + 1) // 4"),
        (sympy.Add(torch_functions.FloorDiv(a - 1, 8), b, 1), "x.shape[1] + ((batch + 7) // 8)"),
        (a + 1, "batch + 1"),
    ],
)
def test_offsets_inside_divisions(expression: sympy.Expr, text: str) -> None:
    found = with_offsets_inside(expression)
    assert expression_text(found, LABELS) == text
    for size in range(1, 70):
        sizes = {a: sympy.Integer(size), b: sympy.Integer(3)}
        assert found.xreplace(sizes) == expression.xreplace(sizes)


HALF = torch_functions.FloorDiv(a, 2)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (sympy.Eq(torch_functions.FloorDiv(a + HALF - 1, HALF), 2), "batch % 2 == 0"),
        (sympy.Ge(torch_functions.FloorDiv(a, 4), 2), "batch >= 8"),
        (sympy.Le(torch_functions.FloorDiv(a, 4), 2), "batch <= 11"),
        (sympy.Eq(torch_functions.FloorDiv(a, 4), 2), "8 <= batch <= 11"),
        (sympy.Eq(3 * a, 9), "batch == 3"),
        (sympy.Eq(8 * a, 8), "batch == 1"),
        (sympy.Eq(8 * a, 4), None),
        (sympy.Eq(torch_functions.Mod(2 * a, 6), 2), "batch % 3 == 1"),
        (sympy.Ne(torch_functions.Mod(a, 2), 0), "batch % 2 == 1"),
        (sympy.Ne(torch_functions.Mod(a, 3), 0), None),
        (sympy.Or(sympy.Eq(sympy.Min(a, 4), 4), sympy.Eq(a, 1)), "(batch == 1) or (batch >= 4)"),
        (sympy.Eq(torch_functions.FloorDiv(a, a - 1), 2), "batch == 2"),
        (sympy.Eq(torch_functions.Mod(8 * a, 32), 0), "batch % 4 == 0"),
    ],
)
def test_the_simplest_form_of_a_condition(condition: sympy.Basic, text: str | None) -> None:
    least = 1 if isinstance(condition, sympy.Or) else 2
    assert simple_condition(condition_of(condition, (a,)), "batch", least) == text


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0, None, "any"),
        (1, 2**63 - 1, "any"),
        (2, None, "2 or more"),
        (5, None, "5 or more"),
        (1, 16, "at most 16"),
        (2, 16, "2 to 16"),
        (4, 512, "4 to 512"),
    ],
)
def test_intervals(low: int, high: int | None, words: str) -> None:
    assert sizes_in_words(low, high) == words


def test_symbols_of_torch_in_a_message() -> None:
    text = without_symbols("shape [s77, 3, u0] and TruncToInt(zuf0)")
    assert text == "shape [a dynamic size, 3, a size that depends on data] and int(a size that depends on data)"
    assert without_symbols("You marked L['x'][0].size()[1] as dynamic") == "You marked x[0].shape[1] as dynamic"
    assert without_symbols("stage s_1 of user0") == "stage s_1 of user0"


def test_a_shape_in_a_message() -> None:
    assert shape_text([2, a, 3]) == "[2, ?, 3]"
