"""What torch recorded becomes conditions with their causes; definitions of dims reduce them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy
import torch
from torch import Tensor
from torch.export import Dim

from fx_onnx.capture.patches.guard_places import PATCHES
from fx_onnx.capture.patches.patching import apply_patches
from fx_onnx.capture.proof.size_candidates import recorded_conditions
from fx_onnx.capture.proof.size_condition import BRANCH, Condition
from fx_onnx.torch_internals.torch_private import size_oblivious
from tests.capture.sample_modules import Function, t


def recorded(function: Callable[..., object], size: int | None = None) -> list[Condition]:
    """Returns the conditions of a function of (9, 8), whose first size the caller may define."""
    with size_oblivious(), apply_patches(PATCHES):
        program = torch.export.export(Function(function), (t(9, 8),), dynamic_shapes={"x": {0: Dim.AUTO}}, strict=False)
    value = next(node.meta["val"] for node in program.graph.nodes if isinstance(node.meta.get("val"), Tensor))
    dims = [each.node.expr for each in value.shape if isinstance(each, torch.SymInt)]
    defined = {dims[0]: sympy.Integer(size)} if size else {}
    return list(recorded_conditions(program, value.fake_mode.shape_env, defined))


@pytest.mark.parametrize(
    ("function", "text", "cause", "is_own"),
    [
        (lambda x: x if x.shape[0] > 3 else x + 1, "n > 3", BRANCH, True),
        (lambda x: x if x.shape[0] % 2 else x + 1, "Ne(Mod(n, 2), 0)", BRANCH, True),
        (lambda x: x.squeeze(0), "Ne(n, 1)", "removes the axis for this size", True),
        (lambda x: x.rot90(x.shape[0] // 4), "Eq((n//4), 2)", "gives the argument 'k' of rot90 a size", False),
    ],
)
def test_a_recorded_condition(function: Callable[..., object], text: str, cause: str, is_own: bool) -> None:
    found = {str(each.expression.xreplace({each.symbols[0]: sympy.Symbol("n")})): each for each in recorded(function)}
    assert text in found
    assert found[text].cause.startswith(cause)
    assert found[text].is_own is is_own


def test_a_definition_reduces_a_condition() -> None:
    assert [each.symbols for each in recorded(lambda x: x if x.shape[0] > 3 else x + 1, 9)] == [()]


@pytest.mark.parametrize(("size", "expected"), [(3, False), (4, True)])
def test_a_condition_holds_for_sizes(size: int, expected: bool) -> None:
    n = sympy.Symbol("n", integer=True)
    assert Condition(n > 3).holds({n: size}) is expected
