"""Assigns the example arguments to the parameters of the forward, for a module and for an ExportedProgram."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.messages.arguments import did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.sizes.symbolic_sizes import expression
from fx_onnx.torch_internals.torch_private import pytree

_ID = MessageId.ARGUMENTS_OF_FORWARD


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
    """Returns the arguments, bound to the signature of the module's forward.

    Raises:
        ArgumentError: The arguments do not fit the signature.
    """
    signature = inspect.signature(model.forward)
    try:
        values = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise ArgumentError(
            f"The arguments do not fit forward{signature}: {error}{_hint(model, signature, kwargs)}",
            id=_ID,
        ) from error
    kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
    var_keyword = kinds.get(inspect.Parameter.VAR_KEYWORD)
    values |= values.pop(var_keyword, {}) if var_keyword else {}
    positional = (name for name in values if name not in kwargs)
    var_positional = kinds.get(inspect.Parameter.VAR_POSITIONAL)
    return ForwardParameters(
        values, (*positional, *kwargs), var_keyword, var_positional if var_positional in values else None
    )


def _hint(model: torch.nn.Module, signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str:
    """Returns the end of the sentence about arguments that do not fit: what may be wrong with those by keyword."""
    if kwargs and type(model).__call__ is not torch.nn.Module.__call__:
        return f"; an export calls forward and not {type(model).__name__}.__call__, so give what forward takes."
    unknown = next((name for name in kwargs if name not in signature.parameters), None)
    if hint := did_you_mean(unknown, signature.parameters):
        return f"; {unknown!r} is given by keyword{hint}"
    last_dict = " (a dict at the end of args holds keyword arguments; add {} after it if it is an argument itself)."
    return last_dict if kwargs else "."


def positional_arguments(model: Any, given: list[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the positional arguments that a list means: itself, or, if the forward cannot take it, its entries.

    TorchScript's exporter takes a list as one argument, and that of dynamo refuses it, so a choice is a finding.
    """
    if isinstance(model, ExportedProgram):
        fits = pytree.tree_structure(((given,), dict(kwargs))) == model.call_spec.in_spec
        return (given,) if fits else tuple(given)
    if not given or not isinstance(model, torch.nn.Module):
        return tuple(given)
    signature = inspect.signature(model.forward)
    if isinstance(given[-1], Mapping) and not kwargs and not last_dict_is_argument(model, tuple(given)):
        return tuple(given)  # no exporter but this one takes the form, so it has one meaning
    is_one, are_several = _takes_list(signature, given, kwargs), _bound(signature, tuple(given), kwargs) is not None
    if not is_one and are_several:
        warn("args is a list, which is unpacked, because forward takes no list; give a tuple.", _ID)
    elif are_several:
        warn("args is a list, which is one argument of forward; give a tuple if its entries are the arguments.", _ID)
    return (given,) if is_one else tuple(given)


def _takes_list(signature: inspect.Signature, given: list[Any], kwargs: Mapping[str, Any]) -> bool:
    """Returns whether the list fits the signature as one argument, for which no annotation asks for a tensor."""
    if _bound(signature, (given,), kwargs) is None:
        return False
    text = str(next(iter(signature.parameters.values())).annotation)
    return "Tensor" not in text or re.search("list|sequence|iterable|tuple", text, re.IGNORECASE) is not None


def _bound(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[Any, Any]) -> dict[str, Any] | None:
    """Returns the arguments by parameter; None if they do not fit."""
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError:
        return None


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


# --- an ExportedProgram -----------------------------------------------------------------------------------------------


def program_parameters(program: ExportedProgram) -> ForwardParameters:
    """Returns the arguments of an ExportedProgram as its fake tensors, whose dynamic sizes are symbols."""
    captured = [value for _, value in _user_inputs(program)]
    args, kwargs = pytree.tree_unflatten(captured, program.call_spec.in_spec)
    names = getattr(program.module_call_graph[0].signature, "forward_arg_names", None)
    values = dict(zip(names or [f"args_{i}" for i in range(len(args))], args, strict=False)) | kwargs
    return ForwardParameters(values, tuple(values))


def program_arguments(
    program: ExportedProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns example arguments for an ExportedProgram, the keyword arguments in the order of the capture.

    A symbolic size may be any size in its range that satisfies the relations between the sizes.

    Raises:
        ArgumentError: The arguments do not have the structure, dtypes and shapes that were captured.
    """
    structure = program.call_spec.in_spec
    count = pytree.tree_structure((args, kwargs)).num_leaves
    if count != structure.num_leaves:
        raise _wrong(f"The ExportedProgram takes {structure.num_leaves} tensors and constants, but {count} are given.")
    try:
        leaves = list(structure.flatten_up_to((args, kwargs)))
    except ValueError as error:
        raise _wrong(
            f"The arguments do not have the structure with which the ExportedProgram was captured: {error}"
        ) from error
    shapes: list[tuple[str, Any, int]] = []  # (axis, captured size, given size)
    for (name, captured), given in zip(_user_inputs(program), leaves, strict=True):
        if isinstance(captured, torch.Tensor):
            if not isinstance(given, torch.Tensor) or (given.dtype, given.ndim) != (captured.dtype, captured.ndim):
                text = f"{given.dtype} {list(given.shape)}" if isinstance(given, torch.Tensor) else shown(given)
                raise _wrong(
                    f"The argument {name!r} is {text}, but the ExportedProgram takes {captured.dtype} "
                    f"{list(captured.shape)}."
                )
            sizes = zip(map(expression, captured.shape), given.shape, strict=True)
            shapes += [(f"{name}.shape[{axis}]", *pair) for axis, pair in enumerate(sizes)]
    symbols = {size: given for _, size, given in shapes if isinstance(size, sympy.Symbol)}
    for axis_text, size, given in shapes:
        expected, allowed = size.subs(symbols), program.range_constraints.get(size)
        if expected.is_number and int(expected) != given:
            raise _wrong(
                f"{axis_text} is {given}, but the ExportedProgram takes {expected}; give an example of this size, or "
                "capture the model again with dynamic_shapes."
            )
        if allowed is not None and given not in (0, 1) and not allowed.lower <= given <= allowed.upper:
            raise _wrong(
                f"{axis_text} is {given}, but the ExportedProgram takes sizes from {allowed.lower} to {allowed.upper}."
            )
    ordered: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_unflatten(leaves, structure)
    return ordered


def _user_inputs(program: ExportedProgram) -> list[tuple[str, Any]]:
    """Returns the name and the fake value of each input; None for a constant."""
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    specs = (spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT)
    return [(spec.arg.name, values.get(spec.arg.name)) for spec in specs]


def _wrong(message: str) -> ArgumentError:
    return ArgumentError(message, id=MessageId.ARGUMENTS_OF_PROGRAM)
