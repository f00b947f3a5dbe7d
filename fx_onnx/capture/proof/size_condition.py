"""A condition on sizes: the one record of what a captured program relies on.

It is a candidate until runs confirm it (``size_proof.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Any, Literal

import sympy

from fx_onnx.sizes.trial_sizes import condition_of

__all__ = [
    "BRANCH", "EQUATES", "RAISES", "UNDEFINED", "WRITES", "Condition", "Sizes", "all_hold", "one_is_larger",
    "weaker_conditions",
]  # fmt: skip

Sizes = Mapping[sympy.Symbol, int]
BRANCH = "takes another branch for other sizes"
RAISES = "raises an exception for other sizes"
EQUATES = "broadcasts one of these sizes to the other"
WRITES = "makes a view or a copy, depending on the sizes, and writes in place"
UNDEFINED = "repeats values that it crops, which are undefined"


@dataclass(frozen=True)
class Condition:
    """A condition on which the captured program relies.

    Attributes:
        expression: the condition over the symbols of the inputs.
        raises: whether torch raises an exception where it is false.
        cause: what the code does, for a sentence.
        line: the line of the code, as ``(file:line: code)``; empty if none is known.
        converts: whether a Python number was needed, which is a constant in the program.
        is_own: whether the model compares or converts sizes itself, without a call of torch.
        function: the function of torch that compares or converts them; None if there is none.
        is_count: whether a Python number was needed, on which no list of pieces in the program depends.
        kind: ``bound`` or ``finding``.
        is_certain: whether a finding is known to be true.
        witness: the sizes at which the condition was seen to be false, by symbol; empty if nothing ran.
        seen: what happened there.
        guard: the condition as torch recorded it.
        is_checked: whether tensors without values raise the exception too. They do not look up indices in tensors.
    """

    expression: Any
    raises: bool = False
    cause: str = BRANCH
    line: str = ""
    converts: bool = False
    is_own: bool = False
    function: Any = None
    is_count: bool = False
    kind: Literal["bound", "finding"] = "finding"
    is_certain: bool = True
    witness: tuple[tuple[sympy.Symbol, int], ...] = ()
    seen: str = ""
    guard: Any = None
    is_checked: bool = False

    @cached_property
    def symbols(self) -> tuple[sympy.Symbol, ...]:
        """The symbols of the expression, in the order of their names."""
        return tuple(sorted(self.expression.free_symbols, key=str))

    @cached_property
    def test(self) -> Any:
        """The condition as a function of the sizes of its symbols."""
        return condition_of(self.expression, self.symbols)

    def holds(self, sizes: Sizes) -> bool:
        """Returns whether the condition is true for sizes."""
        return bool(self.test(*(sizes[symbol] for symbol in self.symbols)))


def all_hold(conditions: Iterable[Condition], sizes: Sizes) -> bool:
    """Returns whether all conditions are true for sizes."""
    return all(condition.holds(sizes) for condition in conditions)


def one_is_larger(symbols: Iterable[sympy.Symbol]) -> Condition:
    """Returns that not all sizes are 1, where the code does not ask for them but for a number that it made of them."""
    return Condition(sympy.Or(*(sympy.Ne(symbol, 1) for symbol in symbols)), cause=BRANCH)


def weaker_conditions(condition: Condition) -> Iterator[Condition]:
    """Yields conditions that one size is not less than another one, and that a number is not less than needed.

    The forward may read the first pieces of a split only, whose number is a condition.
    """
    forms = [first >= second for first, second in permutations(condition.symbols, 2)]
    if condition.is_count and isinstance(condition.expression, sympy.Eq) and condition.expression.args[1].is_Integer:
        number, count = condition.expression.args
        forms += [number >= least for least in range(int(count), 1, -1)]
    yield from (replace(condition, expression=weaker, converts=False) for weaker in forms)
