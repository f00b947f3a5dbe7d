"""Assigns the example arguments to the parameters of a module's forward."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fx_onnx.core.arguments import did_you_mean
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId


@dataclass(frozen=True)
class ForwardParameters:
    """The example arguments by parameter.

    Attributes:
        values: The arguments in the order of the signature. Each argument of ``**kwargs`` has an entry under its
            keyword.
        input_order: The keys of ``values`` in the order of the graph's inputs: positional arguments first, then keyword
            arguments in the order in which the caller gave them.
        var_keyword: The name of the ``**kwargs`` parameter, or None if the forward has none.
        var_positional: The name of the ``*args`` parameter, or None if the forward has none or gets none.
    """

    values: dict[str, Any]
    input_order: tuple[str, ...]
    var_keyword: str | None = None
    var_positional: str | None = None


def module_parameters(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ForwardParameters:
    """Binds the arguments to the signature of the module's forward.

    Raises:
        ArgumentError: The arguments do not fit the signature.
    """
    signature = inspect.signature(model.forward)
    try:
        values = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise ArgumentError(
            f"The arguments do not fit forward{signature}: {error}{_hint(signature, kwargs)}",
            id=MessageId.ARGUMENTS_OF_FORWARD,
        ) from error
    kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
    var_keyword = kinds.get(inspect.Parameter.VAR_KEYWORD)
    values |= values.pop(var_keyword, {}) if var_keyword else {}
    positional = (name for name in values if name not in kwargs)
    var_positional = kinds.get(inspect.Parameter.VAR_POSITIONAL)
    return ForwardParameters(
        values, (*positional, *kwargs), var_keyword, var_positional if var_positional in values else None
    )


def _hint(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str:
    """Returns the end of the sentence about arguments that do not fit: what may be wrong with those by keyword."""
    if not kwargs:
        return "."
    unknown = next((name for name in kwargs if name not in signature.parameters), None)
    if hint := did_you_mean(unknown, signature.parameters):
        return f"; {unknown!r} is given by keyword{hint}"
    return " (a dict at the end of args holds keyword arguments; add {} after it if it is an argument itself)."


def last_dict_is_argument(model: Any, args: tuple[Any, ...]) -> bool:
    """Returns whether the dict at the end of ``args`` is the value of a positional parameter, not keyword arguments.

    This is so if the forward has no ``**kwargs``, no key of the dict is a parameter, and the dict fills the last
    parameter without a default. For example, ``({"x": tensor},)`` for ``forward(inputs)``.
    """
    given = args[-1]
    if not isinstance(model, torch.nn.Module) or not given:
        return False
    parameters = list(inspect.signature(model.forward).parameters.values())
    required = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    takes_keywords = any(p.kind == p.VAR_KEYWORD for p in parameters)
    return not takes_keywords and len(required) == len(args) and not any(p.name in given for p in parameters)


def sorted_by_signature(model: torch.nn.Module, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns keyword arguments in the order of the forward's parameters; those of ``**kwargs`` come last."""
    order = {name: number for number, name in enumerate(inspect.signature(model.forward).parameters)}
    return dict(sorted(kwargs.items(), key=lambda item: order.get(item[0], len(order))))
