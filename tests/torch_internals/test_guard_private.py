"""Tests of the private names of guards: each exists in this torch, and a missing one has the documented effect."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
import torch
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fx_onnx.torch_internals import guard_private
from fx_onnx.torch_internals.torch_private import FakeTensorMode, size_oblivious
from tests.capture.sample_modules import Function


class Even(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] % 2 == 0 else x


def test_facts_of_guards() -> None:
    program = torch.export.export(Even(), (torch.zeros(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    shape_env = next(iter(program.graph.nodes)).meta["val"].fake_mode.shape_env
    (symbol,) = guard_private.symbols_of_sources(shape_env).values()
    assert list(guard_private.symbols_of_sources(shape_env)) == ["L['x'].size()[0]"]
    assert guard_private.names_of_sources(shape_env) == guard_private.names_of_sources(None) == {}
    (guard,) = [guard for guard in shape_env.guards if str(symbol) in str(guard.expr) and "Mod" in str(guard.expr)]
    location = guard_private.guard_location(guard)
    assert location is not None
    assert location.name == "forward"
    assert guard_private.guard_origin(guard) == guard_private.GuardOrigin()
    origin = guard_private.GuardOrigin(traceback.FrameSummary("model.py", 3, "forward"), raises=True)
    guard_private.mark_origin(guard.sloc, origin)
    assert guard_private.guard_origin(guard) is origin


def test_a_forgotten_guard_is_added_again() -> None:
    """torch's caches know nothing of it."""
    program = torch.export.export(Even(), (torch.zeros(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    value = next(iter(program.graph.nodes)).meta["val"]
    shape_env, size = value.fake_mode.shape_env, value.shape[0]
    for condition in (lambda: size % 2 == 0, lambda: size > 3):
        assert bool(condition())
        expressions = [guard.expr for guard in shape_env.guards]
        guard_private.forget_guards(shape_env, expressions[-1:], {size.node.expr: (0, None)})
        assert [guard.expr for guard in shape_env.guards] == expressions[:-1]
        assert bool(condition())
        assert [guard.expr for guard in shape_env.guards] == expressions


@pytest.mark.parametrize(
    ("forgotten", "kept"),
    [
        (lambda n, m: n > 5, lambda n, m: n < 90),
        (lambda n, m: n > 3, lambda n, m: n > 5),
        (lambda n, m: n + m > 7, lambda n, m: n + m > 6),
        (lambda n, m: n % 4 == 0, lambda n, m: n % 2 == 0),
        (lambda n, m: n // 4 == 2, lambda n, m: n % 4 == 0),
        (lambda n, m: n != 5, lambda n, m: m != 5),
        (lambda n, m: n < m * 2, lambda n, m: n > m),
        (lambda n, m: n * m > 9, lambda n, m: n * m < 900),
    ],
)
def test_torch_knows_what_it_knows_without_the_guard(
    forgotten: Callable[[Any, Any], bool], kept: Callable[[Any, Any], bool]
) -> None:
    """A capture that records both guards and forgets one equals a capture that records the other one only.

    It may know a wider range of a size: torch makes it narrower by another size too.
    """

    def facts(function: Callable[[Any, Any], object], is_forgetting: bool) -> list[Any]:
        shapes = ({0: Dim.AUTO(min=2, max=64), 1: Dim.AUTO(min=3)},)
        module = Function(lambda x: x * 2 if function(*x.shape) else x)
        program = torch.export.export(module, (torch.zeros(8, 7),), dynamic_shapes=shapes, strict=False)
        shape_env = next(iter(program.graph.nodes)).meta["val"].fake_mode.shape_env
        symbols = list(guard_private.symbols_of_sources(shape_env).values())
        if is_forgetting:
            ranges = dict(zip(symbols, ((2, 64), (3, None)), strict=True))
            guard_private.forget_guards(shape_env, [shape_env.guards[0].expr], ranges)
        names = dict(zip(symbols, sympy.symbols("n m", integer=True, positive=True), strict=True))
        axioms = {str(each.xreplace(names)): str(value) for each, value in shape_env.axioms.items()}
        spans = [(shape_env.var_to_range[each].lower, shape_env.var_to_range[each].upper) for each in symbols]
        divisible = {str(each.xreplace(names)) for each in shape_env.divisible}
        return [[str(guard.expr.xreplace(names)) for guard in shape_env.guards], axioms, divisible, spans]

    with size_oblivious():
        *one, wider = facts(lambda n, m: bool(forgotten(n, m)) + bool(kept(n, m)) >= 0, is_forgetting=True)
        *other, spans = facts(kept, is_forgetting=False)
    assert one == other
    assert all(a[0] <= b[0] and b[1] <= a[1] for a, b in zip(wider, spans, strict=True))


def test_the_module_of_a_program_checks_given_conditions() -> None:
    program = torch.export.export(Even(), (torch.zeros(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    shape_env = next(iter(program.graph.nodes)).meta["val"].fake_mode.shape_env
    (symbol,) = guard_private.symbols_of_sources(shape_env).values()
    guard_private.check_conditions(program, shape_env, [sympy.Or(symbol > 6, sympy.Eq(symbol, 3))], {symbol: (0, 9)})
    accepted = []
    for rows in range(11):
        with contextlib.suppress(AssertionError):
            program.module()(torch.zeros(rows, 3))
            accepted.append(rows)
    assert accepted == [3, 7, 8, 9]


def test_the_function_that_asks_for_a_layout_exists() -> None:
    """A fake convolution asks for the number of elements of its input, which here depends on a dynamic size."""
    asking = list[bool]()

    class Asked(ShapeEnv):
        def evaluate_sym_node(self, *args: object, **kwargs: object) -> object:
            asking.append(guard_private.asks_for_layout(sys._getframe(1)))
            return super().evaluate_sym_node(*args, **kwargs)

    mode = FakeTensorMode(shape_env=Asked())
    x = mode.from_tensor(torch.ones(1, 8, 6))
    with mode:
        torch.nn.functional.conv1d(x, torch.ones(1, 8, 1))
    assert True in asking
    assert not guard_private.asks_for_layout(sys._getframe())


def test_an_answer_about_a_layout_leaves_no_guard() -> None:
    class Answered(ShapeEnv):
        evaluate_sym_node = guard_private.answered_by_sizes(ShapeEnv.evaluate_sym_node, keep=list[Exception]().append)

    counts = []
    for kind in (ShapeEnv, Answered):
        mode = FakeTensorMode(shape_env=kind())
        x = mode.from_tensor(torch.ones(2, 2, 1)).transpose(1, 2)
        with mode:
            torch.nn.functional.conv1d(x, torch.ones(1, 1, 2))
        counts.append(len(mode.shape_env.guards))
    assert counts[0] > counts[1]


def test_sizes_that_decide() -> None:
    """u0 + n == 1 is false for n >= 2; the answer to u0 == n depends on the data."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    rows, data = mode.from_tensor(torch.ones(5)).shape[0], mode.shape_env.create_unbacked_symint()
    torch._check(data >= 0)
    symbol, other = rows.node.expr, data.node.expr
    decide = partial(guard_private.sizes_that_decide, mode.shape_env)
    assert decide(sympy.Eq(other + symbol, 0)) == (sympy.false, [sympy.Ge(symbol, 1)])
    assert decide(sympy.Eq(other + symbol, 1)) == (sympy.false, [sympy.Ge(symbol, 2)])
    assert decide(sympy.Eq(other, symbol)) == (None, ())
    assert guard_private.sizes_that_decide(SimpleNamespace(), sympy.Eq(other, symbol)) == (None, ())
    assert [guard_private.example_size(each) for each in (rows, data, 3)] == [5, 1, 3]


def test_no_frames_are_traced_outside_of_strict_mode() -> None:
    assert list(guard_private.traced_frames()) == []


def test_facts_of_guards_without_the_attributes() -> None:
    assert guard_private.symbols_of_sources(SimpleNamespace()) == {}
    assert guard_private.guard_location(SimpleNamespace()) is None
    assert guard_private.guard_origin(SimpleNamespace()) == guard_private.GuardOrigin()


def test_a_check_of_a_float_is_no_guard() -> None:
    size, number = sympy.Symbol("s0"), sympy.Symbol("zuf0")
    checks: dict[Any, Any] = {}
    env = SimpleNamespace(deferred_runtime_asserts=checks)

    def record(shape_env: Any, expression: Any) -> bool:  # torch's method puts both among the guards
        shape_env.deferred_runtime_asserts.setdefault(None, []).append(SimpleNamespace(expr=expression))
        return True

    deferring = guard_private.deferring_float_checks(record)
    assert all(deferring(env, expression) for expression in (size > 1, number > 0, number < size))
    recorded = {symbol: [check.expr for check in kept] for symbol, kept in checks.items()}
    assert recorded == {None: [size > 1], number: [number > 0, number < size]}


def test_answers_of_example() -> None:
    with size_oblivious():
        program = torch.export.export(
            Function(lambda x: x * 2), (torch.ones(1, 4),), dynamic_shapes={"x": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}}
        )
    (x,) = (node for node in program.graph.nodes if node.name == "x")
    rows, columns = x.meta["val"].shape
    shape_env = rows.node.shape_env
    before = len(shape_env.guards)
    with guard_private.answers_of_example(shape_env):
        assert bool(columns == 4)
        assert not bool(columns == 3 * rows)
        assert bool(columns == 2 * rows)  # the sizes are 2 and 4
        assert not bool(rows == 1)
    assert len(shape_env.guards) == before
