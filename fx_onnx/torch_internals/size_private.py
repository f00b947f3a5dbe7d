"""The private names of torch's functions on symbolic sizes, and forms of sizes that torch shortens.

The docstring of each function says what happens without the names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

import sympy

__all__ = ["in_fewest_terms", "is_never_negative"]


def in_fewest_terms(number: Any) -> Any:
    """Returns a symbolic number in a form that torch shortens: ``n - n % 4`` is ``4 * (n // 4)``.

    A remainder is a difference, a quotient that is rounded up is one that is rounded down, and a maximum of 0 and what
    is never negative is the latter. So ``n + max(2 - (n - 1) % 2, 0)`` is ``2 * ((n - 1) // 2) + 3``, in which n stands
    once, and the sizes of layers that pad do not double from layer to layer. torch also knows that a multiple of a
    quotient is not negative, and what divides it. Without the attributes, or where no form is shorter, the number is
    returned as it is; then sizes are longer expressions.
    """
    node: Any = getattr(number, "node", None)
    expression = getattr(node, "expr", None)
    if expression is None or not expression.has(*_functions("Mod", "PythonMod", "Max", "CeilToInt")):
        return number
    forms = (_replaced(expression, partial(_without_rounding, sign)).expand() for sign in (1, -1))
    shortest = _replaced(min(forms, key=_length), _of_positive)
    is_shorter = _length(shortest) < _length(expression)
    return node.shape_env.create_symintnode(shortest, hint=node.hint) if is_shorter else number


def is_never_negative(number: Any) -> bool:
    """Returns whether a number is at least 0 for all values of its symbols, as ``7 * ((n + 6) // 7) - n``.

    Without the attribute it is known of no symbolic number.
    """
    expression = getattr(getattr(number, "node", None), "expr", None)
    return number >= 0 if isinstance(number, int) else expression is not None and _is_never_negative(expression)


@cache
def _functions(*names: str) -> tuple[Any, ...]:
    """Returns those of torch's functions on symbolic sizes that this torch has."""
    functions = import_module("torch.utils._sympy.functions")
    return tuple(getattr(functions, name) for name in names if hasattr(functions, name))


def _replaced(expression: Any, function: Callable[[Any], Any]) -> Any:
    """Returns an expression with another form of each part, from inside outwards."""
    return expression.replace(lambda part: part.args, function, simultaneous=False)


def _length(expression: Any) -> tuple[int, int]:
    """Returns how often symbols stand in an expression, and the number of its terms."""
    symbols = sum(part.is_Symbol for part in sympy.preorder_traversal(expression))
    return symbols, len(sympy.Add.make_args(expression))


def _without_rounding(sign: int, part: Any) -> Any:
    """Returns a part of an expression with quotients that are rounded down; ``n % 2`` is that of ``sign * n``."""
    (quotient,) = _functions("FloorDiv")
    if isinstance(part, _functions("Mod", "PythonMod")):
        number, divisor = part.args
        number = sign * number if divisor == 2 else number
        return number - divisor * quotient(number, divisor)
    if isinstance(part, _functions("CeilToInt")) and isinstance(part.args[0], _functions("IntTrueDiv")):
        number, divisor = part.args[0].args
        return -quotient(-number, divisor) if divisor.is_positive else part
    if isinstance(part, _functions("Max")) and len(part.args) == 2 and 0 in part.args:
        other = sum(part.args)
        return other if _is_never_negative(other) else part
    return part


def _of_positive(part: Any) -> Any:
    """Returns ``-n // 2`` as ``-((n + 1) // 2)``, because ONNX divides toward 0."""
    number, divisor = part.args if isinstance(part, _functions("FloorDiv")) else (sympy.S.Zero, 1)
    is_negative = (number - number.as_coeff_Add()[0]).could_extract_minus_sign()
    return -part.func(-number + divisor - 1, divisor) if is_negative else part


def _is_never_negative(expression: Any) -> bool:
    """Returns whether an expression is a number plus multiples of remainders, and at least 0 for all remainders."""
    terms = sympy.Add.make_args(expression.expand())
    least, rest = sympy.Add(*map(_with_remainder, terms)).expand().as_coeff_Add()
    for term in sympy.Add.make_args(rest):
        factor, part = term.as_coeff_Mul()
        if term != 0 and not (isinstance(part, _functions("Mod", "PythonMod")) and _is_count(part.args[1])):
            return False
        least += min(0, factor * (part.args[1] - 1)) if term != 0 else 0
    return bool(least >= 0)


def _with_remainder(term: Any) -> Any:
    """Returns ``2 * (n // 2)`` as ``n - n % 2``, and ``2 * (n // 4)`` as ``n // 2 - n // 2 % 2``."""
    factor, part = term.as_coeff_Mul()
    if not (isinstance(part, _functions("FloorDiv")) and _is_count(part.args[1]) and factor.is_Integer):
        return term
    number, divisor = part.args
    common = sympy.gcd(factor, divisor)
    inner, (remainder,) = part.func(number, divisor / common), _functions("PythonMod")
    return factor / common * (inner - remainder(inner, common))


def _is_count(number: Any) -> bool:
    return bool(number.is_Integer and number > 0)
