"""Symbolic sizes as ONNX values: the value of each symbol, and nodes that compute each expression once.

A symbol is read from the value that defines it: a dim of an input, the result of ``item()``, the length of a
``nonzero``. An expression is computed from its symbols with Python's semantics for ``//`` and ``%``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir
import sympy
import torch

from fx_onnx.messages.arguments import is_dim_word
from fx_onnx.sizes.size_text import expression_text, with_offsets_inside
from fx_onnx.sizes.symbolic_sizes import Size, expression, is_data_dependent
from fx_onnx.translation.node_emitter import NodeEmitter
from fx_onnx.translation.quotients import without_minus_one

_INT, _FLOAT, _BOOL = ir.DataType.INT64, ir.DataType.DOUBLE, ir.DataType.BOOL


class SymbolTable:
    """The values of symbols in one graph, and the names of dims.

    The table of a nested graph reads the values of its ``parent``, but keeps the values that the nested graph computes.

    Attributes:
        names: the user's name for each of torch's expressions of a dim, such as "s17" or "2*s17".
        data_dependent_dims: the names of the dims whose size depends on data, in the whole model.
    """

    def __init__(self, names: Mapping[str, str] | None = None, parent: SymbolTable | None = None) -> None:
        self.names: Mapping[str, str] = parent.names if parent is not None else names or {}
        self._parent = parent
        self._definitions: dict[sympy.Symbol, Callable[[NodeEmitter], ir.Value]] = {}
        self._derived: list[tuple[sympy.Expr, Callable[[NodeEmitter], ir.Value]]] = []
        self._values: dict[tuple[sympy.Basic, int], ir.Value] = {}
        self._dims: dict[sympy.Expr, int | str] = parent._dims if parent is not None else {}
        self.data_dependent_dims: set[str] = parent.data_dependent_dims if parent is not None else set()
        self._own: set[sympy.Basic] = set()

    def bind(self, size: Any, read: Callable[[NodeEmitter], ir.Value]) -> None:
        """Defines the symbol of a body's parameter inside the body; outside, the symbol may have another value."""
        symbol = expression(size)
        self._definitions[symbol] = read
        self._own.add(symbol)

    def define(self, size: Any, read: Callable[[NodeEmitter], ir.Value]) -> None:
        """Records that ``read`` emits the value of ``size``; the first definition of a symbol stays."""
        expr = expression(size)
        if isinstance(expr, sympy.Symbol):
            if not self._is_defined(expr):
                self._definitions[expr] = read
        elif isinstance(expr, sympy.Eq) and isinstance(expr.lhs, sympy.Symbol) and expr.rhs == 1:
            # torch's form of a boolean read from a tensor: its symbol is 1 for true and 0 for false
            if not self._is_defined(expr.lhs):
                self._definitions[expr.lhs] = lambda op: op.Cast(read(op), to=_INT)
        elif expr.free_symbols and not all(map(self._is_defined, expr.free_symbols)):
            self._derived.append((expr, read))

    def define_sizes(self, value: ir.Value, sizes: tuple[Size, ...]) -> None:
        """Records that the symbols of symbolic dims can be read from the shape of ``value``."""
        for axis, size in enumerate(sizes):
            if isinstance(size, torch.SymInt):
                self.define(size, lambda op, axis=axis: op.Shape(value, start=axis, end=axis + 1))  # type: ignore[misc]

    def _is_defined(self, symbol: Any) -> bool:
        return symbol in self._definitions or (self._parent is not None and self._parent._is_defined(symbol))

    def dim(self, size: Size) -> int | str:
        """Returns the dim for an ONNX shape: a number, the user's name, or an expression over the user's names."""
        if isinstance(size, int):
            return size
        expr = expression(size)
        known = self._dims.get(expr)
        if known is None:
            known = self._dims[expr] = int(expr) if expr.is_Integer else self._name(expr)
            if isinstance(known, str) and is_data_dependent(expr):
                self.data_dependent_dims.add(known)
        return known

    def _name(self, expr: sympy.Expr) -> str:
        if (name := self.names.get(str(expr))) is not None:
            return name
        names = {s: self.names[s.name] for s in expr.free_symbols if s.name in self.names}
        words = {s: name if is_dim_word(name) else f"dim_text_{s.name}_" for s, name in names.items()}
        labels = {s.name: words.get(s, s.name) for s in expr.free_symbols}
        text = expression_text(with_offsets_inside(expr), labels).replace(" ", "")
        for symbol, name in names.items():
            if words[symbol] != name:  # "past + 1" is one operand
                text = text.replace(words[symbol], f"({name})")
        return text

    def value(self, op: NodeEmitter, size: Any, rank: int = 1) -> ir.Value:
        """Returns a number as an INT64, DOUBLE or BOOL value of shape ``[1]`` (rank 1) or ``[]`` (rank 0).

        Raises:
            LookupError: no value defines a symbol of the number.
            NotImplementedError: the expression uses a function that has no ONNX form here.
        """
        return self._value(op, expression(size), rank)

    def _value(self, op: NodeEmitter, expr: sympy.Basic, rank: int) -> ir.Value:
        if (known := self._find((expr, rank))) is not None:
            return known
        if expr.is_number or expr in (sympy.true, sympy.false):
            number = bool(expr) if expr in (sympy.true, sympy.false) else int(expr) if expr.is_integer else float(expr)
            dtype = _BOOL if isinstance(number, bool) else _INT if isinstance(number, int) else _FLOAT
            return op.number([number] if rank else number, dtype)
        if rank == 0:
            value = op.Squeeze(self._value(op, expr, 1), [0])
        elif isinstance(expr, sympy.Symbol):
            value = self._symbol(op, expr)
        else:
            value = _ExpressionEmitter(op, lambda e: self._value(op, e, 1)).compute(expr)
        self._values[expr, rank] = value
        return value

    def _find(self, key: tuple[sympy.Basic, int]) -> ir.Value | None:
        known = self._values.get(key)
        if known is not None or self._parent is None or self._own.intersection(key[0].free_symbols):
            return known
        return self._parent._find(key)

    def _symbol(self, op: NodeEmitter, symbol: sympy.Symbol) -> ir.Value:
        table: SymbolTable | None = self
        while table is not None:
            if symbol in table._definitions:
                return table._definitions[symbol](op)
            table = table._parent
        for expr, read in self._all_derived():
            if expr.free_symbols == {symbol} and (inverse := _inverse(expr, symbol)) is not None:
                scale, offset = inverse
                shifted = read(op) if offset == 0 else op.Sub(read(op), [offset])
                return shifted if scale == 1 else op.Div(shifted, [scale])
        raise LookupError(f"no input or result of the program has a dim that defines the symbolic size {symbol}")

    def _all_derived(self) -> list[tuple[sympy.Expr, Callable[[NodeEmitter], ir.Value]]]:
        return self._derived + (self._parent._all_derived() if self._parent is not None else [])


def _inverse(expr: sympy.Expr, symbol: sympy.Symbol) -> tuple[int, int] | None:
    """Returns the integers (scale, offset) if ``expr`` is ``scale * symbol + offset``, else None."""
    poly = sympy.Poly(expr, symbol) if expr.is_polynomial(symbol) else None
    if poly is None or poly.degree() != 1:
        return None
    scale, offset = poly.all_coeffs()
    return (int(scale), int(offset)) if scale.is_Integer and offset.is_Integer else None


def _lower_bound(expr: sympy.Basic) -> int | None:
    """Returns a number that an integer is never below, from what is known of its parts; None if that is nothing."""
    if expr.is_Integer:
        return int(expr)
    if expr.is_nonnegative:
        return int(bool(expr.is_positive))
    if expr.is_Add:
        bounds = [_lower_bound(part) for part in expr.args]
        return None if None in bounds else sum(term for term in bounds if term is not None)
    is_quotient = type(expr).__name__ == "FloorDiv"  # torch's function, which has no public module
    if is_quotient and expr.args[1].is_Integer and expr.args[1].is_positive:
        bound = _lower_bound(expr.args[0])
        return None if bound is None else bound // int(expr.args[1])
    return None


def _may_overflow(dividend: sympy.Basic, divisor: sympy.Basic) -> bool:
    """Returns whether the lowest INT64 may be divided by -1."""
    return _lower_bound(dividend) is None and _lower_bound(divisor) is None and not divisor.is_Integer


_FOLDED = {
    "add": "Add", "mul": "Mul", "and": "And", "or": "Or", "bitwisefn_bitwise_and": "BitwiseAnd",
    "bitwisefn_bitwise_or": "BitwiseOr",
}  # fmt: skip
"""Functions of several arguments whose ONNX operator takes two: the name of the class, in lower case → the operator."""
_WHOLE = {
    "max": "Max", "min": "Min", "equality": "Equal", "strictlessthan": "Less", "lessthan": "LessOrEqual",
    "strictgreaterthan": "Greater", "greaterthan": "GreaterOrEqual", "abs": "Abs", "not": "Not",
}  # fmt: skip
"""Functions that are one ONNX operator of the same arguments."""
_ROUNDED = {"ceiltoint": "Ceil", "ceiling": "Ceil", "floortoint": "Floor", "floor": "Floor", "roundtoint": "Round"}
"""Functions from a float to an integer."""


class _ExpressionEmitter:
    """Emits one expression of sympy or of torch's own sympy functions; ``recurse`` returns the values of arguments."""

    def __init__(self, op: NodeEmitter, recurse: Callable[[sympy.Basic], ir.Value]) -> None:
        self._op, self._recurse = op, recurse

    def compute(self, expr: sympy.Basic) -> ir.Value:
        """Emits an expression. Class names select the form, because torch's sympy functions have no public module."""
        kind = type(expr).__name__.lower()
        if kind in _FOLDED:
            return self._fold(_FOLDED[kind], expr.args)
        if kind in _ROUNDED:
            return self._op.Cast(getattr(self._op, _ROUNDED[kind])(self._double(*expr.args)), to=_INT)
        if kind in _WHOLE:
            value: ir.Value = getattr(self._op, _WHOLE[kind])(*self._same_dtype(*expr.args))
            return value
        method: Callable[..., ir.Value] | None = getattr(self, f"_{kind}", None)
        if method is None:
            raise NotImplementedError(
                f"the symbolic expression {expr} uses {type(expr).__name__}, which has no ONNX form here"
            )
        return method(*expr.args)

    def _fold(self, name: str, args: tuple[sympy.Basic, ...]) -> ir.Value:
        operands = self._same_dtype(*args)
        result = operands[0]
        for operand in operands[1:]:
            result = getattr(self._op, name)(result, operand)
        return result

    def _same_dtype(self, *args: sympy.Basic) -> list[ir.Value]:
        values = [self._recurse(arg) for arg in args]
        if any(v.dtype == _FLOAT for v in values):
            return [self._as_double(v) for v in values]
        return values

    def _as_double(self, value: ir.Value) -> ir.Value:
        return value if value.dtype == _FLOAT else self._op.Cast(value, to=_FLOAT)

    def _double(self, arg: sympy.Basic) -> ir.Value:
        return self._as_double(self._recurse(arg))

    def _pow(self, base: sympy.Basic, exponent: sympy.Basic) -> ir.Value:
        if base.is_integer and exponent.is_Integer and 0 < int(exponent) <= 4:
            return self._fold("Mul", (base,) * int(exponent))
        power = self._op.Pow(self._double(base), self._double(exponent))
        return self._op.Cast(power, to=_INT) if base.is_integer and exponent.is_nonnegative else power

    _powbynatural = _floatpow = _pow

    def _floordiv(self, a: sympy.Basic, b: sympy.Basic) -> ir.Value:
        """Emits Python's ``//``. ONNX Div truncates, so a quotient that may be negative needs a correction."""
        op, numerator, denominator = self._op, self._recurse(a), self._divisor(b)
        least = _lower_bound(a)
        if least is not None and least < 0 and b.is_Integer and b.is_positive:
            steps = -least // int(b) + (-least % int(b) > 0)
            return op.Sub(op.Div(op.Add(numerator, [steps * int(b)]), denominator), [steps])
        if _may_overflow(a, b):
            numerator, denominator = without_minus_one(op, numerator, denominator)
        quotient = op.Div(numerator, denominator)
        if least is not None and least >= 0 and b.is_nonnegative:
            return quotient
        remainder = op.Sub(numerator, op.Mul(quotient, denominator))
        different_sign = op.Xor(op.Less(remainder, [0]), op.Less(denominator, [0]))
        inexact = op.Not(op.Equal(remainder, [0]))
        return op.Sub(quotient, op.Cast(op.And(inexact, different_sign), to=_INT))

    def _cleandiv(self, a: sympy.Basic, b: sympy.Basic) -> ir.Value:
        operands = self._recurse(a), self._divisor(b)
        return self._op.Div(*(without_minus_one(self._op, *operands) if _may_overflow(a, b) else operands))

    def _divisor(self, expr: sympy.Basic) -> ir.Value:
        """Emits an integer divisor that is never 0, because ONNX Runtime ends the process where it is."""
        value = self._recurse(expr)
        if expr.is_positive or expr.is_Integer or value.dtype == _FLOAT:
            return value
        if expr.is_nonnegative:
            return self._op.Max(value, [1])
        return self._op.Add(value, self._op.Cast(self._op.Equal(value, [0]), to=_INT))

    def _trunctoint(self, arg: sympy.Basic) -> ir.Value:
        return self._op.Cast(self._double(arg), to=_INT)

    _tofloat = _double

    def _inttruediv(self, a: sympy.Basic, b: sympy.Basic) -> ir.Value:
        return self._op.Div(self._double(a), self._double(b))

    _floattruediv = _inttruediv

    def _pythonmod(self, a: sympy.Basic, b: sympy.Basic) -> ir.Value:
        """Emits Python's ``%``, whose result has the sign of the divisor, like ONNX Mod of integers."""
        op, (dividend, divisor) = self._op, self._same_dtype(a, b)
        if dividend.dtype != _FLOAT:
            divisor = divisor if b.is_Integer else self._divisor(b)
            return op.Mod(dividend, without_minus_one(op, dividend, divisor)[1] if _may_overflow(a, b) else divisor)
        return op.Sub(dividend, op.Mul(divisor, op.Floor(op.Div(dividend, divisor))))

    _mod = _pythonmod

    def _modularindexing(self, base: sympy.Basic, divisor: sympy.Basic, modulus: sympy.Basic) -> ir.Value:
        return self._op.Mod(self._floordiv(base, divisor), self._recurse(modulus))

    def _piecewise(self, *branches: sympy.Basic) -> ir.Value:
        result = self._recurse(branches[-1].args[0])
        for branch in reversed(branches[:-1]):
            then, condition = branch.args
            result = self._op.Where(self._recurse(condition), self._recurse(then), result)
        return result

    def _where(self, condition: sympy.Basic, then: sympy.Basic, otherwise: sympy.Basic) -> ir.Value:
        return self._op.Where(self._recurse(condition), *self._same_dtype(then, otherwise))

    def _unequality(self, a: sympy.Basic, b: sympy.Basic) -> ir.Value:
        return self._op.Not(self._op.Equal(*self._same_dtype(a, b)))

    def _sqrt(self, arg: sympy.Basic) -> ir.Value:
        return self._op.Sqrt(self._double(arg))

    _opaqueunaryfn_sqrt = _sqrt
