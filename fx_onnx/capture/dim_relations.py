"""Reports the dims that were requested separately, but that the captured program relates to each other.

torch.export gives every requested dim a symbol. Where the model needs two dims to be equal, or one dim to be an
expression of others, torch replaces the symbol. The relation may be a coincidence of the example, so every relation
that the user did not request is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import sympy

from fx_onnx.capture.dim_expressions import AxisText, dim_expression
from fx_onnx.capture.dynamic_dims import CapturedInput, guard_place
from fx_onnx.core.size_text import expression_text

_LISTED = 4  # a cache with many layers has hundreds of equal dims


def dim_relations(inputs: list[CapturedInput], labels: Mapping[str, str]) -> Iterator[str]:
    """Yields one sentence for each relation between dims that the user requested separately.

    Dims with one name, and the dims of a `Dim` expression such as `2*batch`, were requested as related.

    Args:
        inputs: The tensors among the graph's inputs.
        labels: A label for each symbol, for expressions of dims.
    """
    for expression, dims in _dims_by_expression(inputs).items():
        first, *others = dict.fromkeys(dims.values())
        places = [place if name is None else repr(name) for place, name in dims.items()]
        shown = list(dict.fromkeys(places))
        guard = _guard(inputs, expression)
        place = "" if guard is None else guard_place(guard)
        place = f" {place}" if place else ""
        if others or (first is None and len(shown) > 1):
            name = next((name for name in (first, *others) if name is not None), None)
            text = _listed(shown)
            called = f"; {'both' if len(shown) == 2 else 'all'} are called {name!r}" if name else ""
            yield f"The model makes the dims {text} equal{called}{place}."
        if not expression.is_Symbol and not any(map(_is_dim_expression, dims.values())):
            text = expression_text(expression, labels)
            yield f"The model makes the dim {shown[0]} equal to {text}{place}."


def describe_relation(relation: Any, call: str, labels: Mapping[str, str]) -> str:
    """Returns the warning that the model is correct only where an equation holds, such as `total == new + past`."""
    return f"The exported model is correct only where {expression_text(relation, labels)}, which {call} requires."


def _guard(inputs: list[CapturedInput], expression: Any) -> Any:
    """Returns the guard that makes two dims this expression; None if there is none."""
    for shape_env in {id(env): env for each in inputs if (env := each.shape_env) is not None}.values():
        for guard in shape_env.guards:
            sides = guard.expr.args if isinstance(guard.expr, sympy.Eq) else ()
            if len(set(sides)) == 2 and all(shape_env.replace(side) == expression for side in sides):
                return guard
    return None


def _is_dim_expression(name: str | None) -> bool:
    """Returns whether a name comes from a `Dim` expression, such as ``2*batch``, which the user requested."""
    return name is not None and not name.isidentifier() and not isinstance(name, AxisText)


def _dims_by_expression(inputs: list[CapturedInput]) -> dict[Any, dict[str, str | None]]:
    """Returns the dims requested as dynamic by the expression that torch gives them: their places and names."""
    requested = [(each, axis, name, each.dim(axis)) for each in inputs for axis, name in each.request.axes.items()]
    sizes = {name: dim for _, _, name, dim in requested if name is not None and not isinstance(dim, int)}
    found: dict[Any, dict[str, str | None]] = {}
    for each, axis, name, dim in requested:
        is_expression = name is not None and dim_expression(name, sizes) is not None  # `symbol_names` compares it
        if not isinstance(dim, int) and not is_expression:
            found.setdefault(dim, {})[f"{each.name}.shape[{axis}]"] = name
    return found


def _listed(dims: list[str]) -> str:
    """Writes `a, b and c`, with the first few dims of a long list."""
    if len(dims) > _LISTED + 1:
        return ", ".join(islice(dims, _LISTED)) + f" and {len(dims) - _LISTED} more"
    return f"{', '.join(dims[:-1])} and {dims[-1]}"
