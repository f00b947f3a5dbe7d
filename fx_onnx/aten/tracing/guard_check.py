"""Check of the guards that a trace adds: a decomposition that specializes a symbolic size is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy
from torch.fx import Node

from fx_onnx.aten.fx_nodes import describe
from fx_onnx.messages.errors import TranslationError
from fx_onnx.sizes.trial_sizes import is_identity
from fx_onnx.torch_internals.guard_private import disproved_guards, forget_guards, known_sizes, ranges_before_hints
from fx_onnx.torch_internals.torch_private import FakeTensorMode, Mod, size_oblivious


@contextmanager
def refuse_guards(fake_mode: FakeTensorMode, node: Node, verb: str = "decomposed") -> Iterator[list[sympy.Eq]]:
    """Refuses a trace that adds guards on symbolic sizes, because its graph is right for the example's sizes only.

    Inside the context, torch adds no guard when the function asks whether a size is 0 or 1. Preconditions of the
    operator (``is_precondition``), the assumption that a tensor has elements (``is_nonempty``), what holds for all
    sizes, and what the capture asks for too are accepted: torch does not find a part of an ``And`` again, nor a guard
    whose expression other facts simplify. So is a guard of the capture on which the captured graph does not depend: it
    is a relation here.

    Args:
        fake_mode: the mode of the trace, whose shape environment collects the guards.
        node: the call that is traced, for the message.
        verb: what happens to the call, for the message.

    Yields:
        a list that receives the accepted relations of sizes, such as ``Eq(total, past + sequence)``, when the trace
        ends. Equal symbols are left out: torch.export merges such dims without a message too. So are equations that
        hold for all sizes, which torch does not see in expressions with ``max`` and ``min``.

    Raises:
        TranslationError: the trace added a guard; the message lists all.
    """
    before = len(_guards(fake_mode))
    known = {part for guard in _guards(fake_mode) for part in sympy.And.make_args(guard.expr)}
    relations: list[sympy.Eq] = []
    with size_oblivious(), ranges_before_hints(fake_mode.shape_env):
        yield relations
    guards = [guard.expr for guard in _guards(fake_mode)[before:] if guard.expr not in known]
    needed = [guard for guard in guards if guard in disproved_guards(fake_mode.shape_env)]
    guards = [guard for guard in guards if guard not in needed and not is_identity(guard)]
    if refused := [str(guard) for guard in guards if not is_precondition(guard) and not is_nonempty(guard)]:
        raise TranslationError(
            f"{describe(node)} can only be {verb} where {' and '.join(refused)}, because a dynamic size becomes a "
            "number; make the dim static, or compute with the size itself."
        )
    relations += [guard for guard in guards if is_precondition(guard) and not _are_two_symbols(guard)]
    relations += needed


@contextmanager
def undone_guards(fake_mode: FakeTensorMode) -> Iterator[list[Any]]:
    """Yields the list of the guards that the context adds, of which torch forgets those that are no preconditions."""
    shape_env = fake_mode.shape_env
    before, undone = len(_guards(fake_mode)), list[Any]()
    ranges = {symbol: (span.lower, span.upper) for symbol, span in getattr(shape_env, "var_to_range", {}).items()}
    yield undone
    added = [guard.expr for guard in _guards(fake_mode)[before:]]
    undone += [guard for guard in added if not is_precondition(guard) and not is_nonempty(guard)]
    if undone:
        forget_guards(shape_env, undone, ranges)


def refuse_numbers(fake_mode: FakeTensorMode, names: Mapping[str, str]) -> None:
    """Refuses a program in which a dynamic dim became a number after the capture, outside of ``refuse_guards``.

    Args:
        fake_mode: the mode of the program.
        names: the name of the dim of each symbol, such as "s17"; other expressions are ignored.

    Raises:
        TranslationError: a dim is a number; the message lists all.
    """
    sizes = known_sizes(fake_mode.shape_env) if fake_mode.shape_env is not None else {}
    numbers = {names[str(symbol)]: size for symbol, (size, _) in sizes.items() if str(symbol) in names}
    if lost := [f"{name} is {size}" for name, size in numbers.items() if size is not None and size.is_number]:
        raise TranslationError(
            f"A dynamic size became a number after the capture: {', '.join(lost)}; make the dim static, or compute "
            "with the size itself."
        )


def is_precondition(guard: Any) -> bool:
    """Returns whether a guard states that two symbolic sizes are equal.

    The operator itself requires such sizes to be equal, as attention does for the lengths of keys and values.
    """
    return isinstance(guard, sympy.Eq) and all(side.free_symbols for side in guard.args)


def is_nonempty(guard: Any) -> bool:
    """Returns whether a guard states that a number of elements is not 0, as torch assumes of every tensor."""
    return isinstance(guard, sympy.Ne) and guard.args[1] == 0 and not guard.has(Mod)


def _are_two_symbols(equation: sympy.Eq) -> bool:
    """Returns whether an equation states no more than that two symbols are equal: a + b == b + c, for example."""
    terms = sympy.Add.make_args(sympy.expand(equation.lhs - equation.rhs))
    symbols = {term if isinstance(term, sympy.Symbol) else -term for term in terms}
    return len(symbols) == 2 and all(isinstance(symbol, sympy.Symbol) for symbol in symbols)


def _guards(fake_mode: FakeTensorMode) -> list[Any]:
    """Returns the guards on symbolic sizes so far."""
    return fake_mode.shape_env.guards if fake_mode.shape_env is not None else []
