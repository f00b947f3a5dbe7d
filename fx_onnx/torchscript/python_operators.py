"""The operators of TorchScript on numbers, strings, lists and dicts, as Python functions; the ATen schema names them.

A number may be symbolic: the size of a dynamic dim, or a number that depends on data.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torchscript.script_graph import Operation
from fx_onnx.torchscript.script_values import Appended, ScalarTensor, number_of

__all__ = [
    "NUMBER_TENSOR_OPERATORS", "OPERATORS_ON_ANY_VALUE", "PYTHON_OPERATORS", "has_appended", "on_grown_list",
]  # fmt: skip


def _division(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """Implements ``aten::div`` and ``aten::div.Scalar_mode``."""
    if rounding_mode is None:
        return a / b
    return a // b if rounding_mode == "floor" else math.trunc(a / b)


def _in_place(change: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an operator that changes its first argument and returns it."""

    def changed(container: Any, *arguments: Any) -> Any:
        change(container, *arguments)
        return container

    return changed


def _range_length(low: Any, high: Any, step: int) -> Any:
    """Returns the number of iterations, which is symbolic for a range over a dynamic dim or a number of the data."""
    if not isinstance(low, torch.SymInt) and not isinstance(high, torch.SymInt):
        return len(range(low, high, step))
    span, stride = (high - low, step) if step > 0 else (low - high, -step)
    return torch.sym_max(0, (span + stride - 1) // stride)


def _extreme(of_two: Callable[..., Any], of_list: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the operator for the extreme of two numbers, of the numbers in a list, or of the pairs in two lists."""
    return lambda *values: (of_list if len(values) == 1 or isinstance(values[0], list) else of_two)(*values)


def _of_number(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of a number as an operator on a number or a 0-d tensor."""
    return lambda value, *arguments: function(number_of(value), *arguments)


def _methods(cls: type[Any], names: str) -> dict[str, Callable[..., Any]]:
    return {f"aten::{name}": getattr(cls, name) for name in names.split()}


_OPERATORS = "add sub mul eq ne lt le gt ge neg mod __and__ __or__ __xor__ __lshift__ __rshift__".split()  # noqa: SIM905
_FUNCTIONS_OF_MATH = (
    "acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh degrees erf erfc exp expm1 fabs factorial floor "
    "fmod frexp gamma gcd isfinite isinf isnan ldexp lgamma log log10 log1p modf radians sin sinh tan tanh"
)

OPERATORS_ON_ANY_VALUE: dict[str, Callable[..., Any]] = {
    "aten::item": number_of,
    "aten::Int": _of_number(torch.sym_int),
    "aten::Float": _of_number(torch.sym_float),
    "aten::Bool": _of_number(lambda value: value if isinstance(value, torch.SymBool) else value != 0),
    "aten::Complex": _of_number(complex),
    "aten::IntImplicit": _of_number(torch.sym_int),
    "aten::FloatImplicit": _of_number(torch.sym_float),
    "aten::ScalarImplicit": number_of,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::len": lambda value: value.size(0) if isinstance(value, torch.Tensor) else len(value),
    "aten::list": list,
    "aten::_set_item": _in_place(operator.setitem),
    "aten::append": _in_place(list.append),
    "aten::format": str.format,
}
"""Operators whose arguments may be tensors or not."""

PYTHON_OPERATORS: dict[str, Callable[..., Any]] = {
    **{f"aten::{name}": getattr(math, name) for name in _FUNCTIONS_OF_MATH.split()},
    **{f"aten::{name}": getattr(operator, name) for name in _OPERATORS},
    "aten::__range_length": _range_length,
    "aten::__derive_index": lambda count, start=0, step=1: start + count * step,
    "aten::div": _division,
    "aten::floordiv": operator.floordiv,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::pow": lambda a, b: math.pow(a, b) if {type(a), type(b)} <= {bool, int, float} else a**b,
    "aten::sqrt": torch.sym_sqrt,
    "aten::round": lambda value: float(round(value)),
    "aten::divmod": divmod,
    "aten::polar": cmath.rect,
    "aten::bitwise_not": operator.invert,
    "aten::__not__": torch.sym_not,
    "prim::abs": abs,
    "prim::max": _extreme(torch.sym_max, max),
    "prim::min": _extreme(torch.sym_min, min),
    "aten::sum": sum,
    "aten::any": any,
    "aten::all": all,
    "aten::dict": lambda items=(): dict(items),
    "aten::sorted": sorted,
    "aten::__contains__": operator.contains,
    "aten::__getitem__": operator.getitem,
    "aten::Delete": operator.delitem,
    "aten::add_": operator.iadd,
    "aten::slice": lambda items, *bounds: items[slice(*bounds)],
    "aten::ord": ord,
    "aten::chr": chr,
    "aten::str": str,
    "aten::hex": hex,
    "aten::oct": oct,
    "aten::bin": bin,
    "aten::hash": hash,
    "prim::StringIndex": operator.getitem,
    "aten::percentFormat": lambda text, *values: text % values,
    **_methods(list, "extend insert reverse count index remove clear copy"),
    **_methods(dict, "get setdefault update popitem"),
    "aten::sort": lambda items, reverse=False: items.sort(reverse=reverse),
    "aten::keys": lambda mapping: list(mapping.keys()),
    "aten::values": lambda mapping: list(mapping.values()),
    "aten::items": lambda mapping: list(mapping.items()),
    "aten::pop": lambda container, *args: container.pop(*args),
    **_methods(
        str,
        "split strip lstrip rstrip join startswith endswith upper lower capitalize title replace find rfind "
        "splitlines isdigit isalpha isspace isupper islower zfill center",
    ),
}
"""Operators whose arguments are no tensors. ``aten::add`` of two lists joins them, ``aten::mul`` repeats a list."""


def _on_numbers(function: Callable[..., Any], dtype: Callable[..., torch.dtype]) -> Callable[..., ScalarTensor]:
    """Returns ``function``, which computes with numbers, as an operator on ScalarTensors."""

    def compute(*args: Any) -> ScalarTensor:
        return ScalarTensor(function(*map(number_of, args)), dtype(*args))

    return compute


def _same_dtype(a: Any, b: Any = 0, *_: Any) -> torch.dtype:
    return torch.result_type(*(_example(value) for value in (a, b)))


def _float_dtype(a: Any, b: Any = 0, rounding_mode: str | None = None) -> torch.dtype:
    dtype = _same_dtype(a, b)
    return dtype if dtype.is_floating_point or rounding_mode else torch.get_default_dtype()


def _example(value: Any) -> Any:
    """Returns a real tensor or number of the value's type, for torch's rules of type promotion."""
    if isinstance(value, ScalarTensor):
        return torch.empty((), dtype=value.dtype, device="meta")
    return 1.0 if isinstance(value, (float, torch.SymFloat)) else 1


NUMBER_TENSOR_OPERATORS: dict[str, Callable[..., ScalarTensor]] = {
    "aten::add": _on_numbers(lambda a, b, alpha=1: a + b * alpha, _same_dtype),
    "aten::sub": _on_numbers(lambda a, b, alpha=1: a - b * alpha, _same_dtype),
    "aten::rsub": _on_numbers(lambda a, b, alpha=1: b - a * alpha, _same_dtype),
    "aten::mul": _on_numbers(operator.mul, _same_dtype),
    "aten::floor_divide": _on_numbers(operator.floordiv, _same_dtype),
    "aten::remainder": _on_numbers(operator.mod, _same_dtype),
    "aten::neg": _on_numbers(operator.neg, _same_dtype),
    "aten::div": _on_numbers(_division, _float_dtype),
    "aten::floor": _on_numbers(lambda a: a // 1, _same_dtype),
}
"""Operators on 0-d tensors that hold known numbers, by which a traced model computes sizes."""


# --- lists to which a loop on data has appended: their tensors are one stacked tensor of dynamic length ---------------


def has_appended(value: Any) -> bool:
    """Returns whether a value is a list to which a loop on data has appended."""
    return isinstance(value, list) and any(isinstance(item, Appended) for item in value)


def on_grown_list(operation: Operation, arguments: Sequence[Any]) -> Any:
    """Returns the result of an operator on a list to which a loop on data has appended.

    Raises:
        CaptureError: The operator needs the number of items.
    """
    items, *rest = arguments
    function = _ON_GROWN_LISTS.get(operation.kind)
    if function is None or not has_appended(items):
        raise CaptureError(
            f"The length of a list depends on data, and {operation.kind} needs it{operation.source}; torch.stack, "
            "torch.cat, len and an index are possible on such a list.",
            id=MessageId.TORCHSCRIPT,
        )
    return function(operation, items, *rest)


def _item(operation: Operation, items: list[Any], index: Any) -> Any:
    """Returns an item that a known place names, or any item if a loop has appended all of them."""
    if len(items) == 1:
        return items[0].stacked.select(0, index)
    known = items[index] if isinstance(index, int) and -len(items) <= index < len(items) else None
    between = (
        items[:index] if isinstance(index, int) and index >= 0 else items[index:] if isinstance(index, int) else items
    )
    if known is None or isinstance(known, Appended) or has_appended(between):
        raise CaptureError(
            f"The item that an index selects is not known, because the length of the list depends on data"
            f"{operation.source}; select it from torch.stack of the list.",
            id=MessageId.TORCHSCRIPT,
        )
    return known


def _stack(operation: Operation, items: list[Any], dim: int = 0) -> torch.Tensor:
    rows = [item.stacked if isinstance(item, Appended) else item.unsqueeze(0) for item in items]
    return torch.cat(rows).movedim(0, dim)


def _cat(operation: Operation, items: list[Any], dim: int = 0) -> torch.Tensor:
    rank = next(item.stacked.dim() - 1 for item in items if isinstance(item, Appended))
    axis = dim % rank
    parts = [
        item.stacked.movedim(0, axis).flatten(axis, axis + 1) if isinstance(item, Appended) else item for item in items
    ]
    return torch.cat(parts, axis)


_ON_GROWN_LISTS: dict[str, Callable[..., Any]] = {
    "aten::len": lambda _, items: sum(item.stacked.size(0) if isinstance(item, Appended) else 1 for item in items),
    "aten::__getitem__": _item,
    "aten::stack": _stack,
    "aten::cat": _cat,
    "aten::concat": _cat,
}
