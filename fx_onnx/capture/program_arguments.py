"""The arguments of an ExportedProgram by parameter, and a check that example arguments are ones that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.capture.forward_parameters import ForwardParameters
from fx_onnx.core.arguments import shown
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId
from fx_onnx.core.torch_private import pytree, symbolic_expression

__all__ = ["program_arguments", "program_parameters"]


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
    leaves = _leaves(program, args, kwargs)
    shapes: list[tuple[str, Any, int]] = []  # (place, captured size, given size)
    for (name, captured), given in zip(_user_inputs(program), leaves, strict=True):
        if isinstance(captured, torch.Tensor):
            _check_type(name, captured, given)
            sizes = zip(map(_expression, captured.shape), given.shape, strict=True)
            shapes += [(f"{name}.shape[{axis}]", *pair) for axis, pair in enumerate(sizes)]
    symbols = {size: given for _, size, given in shapes if isinstance(size, sympy.Symbol)}
    for place, size, given in shapes:
        expected, allowed = size.subs(symbols), program.range_constraints.get(size)
        if expected.is_number and int(expected) != given:
            raise _wrong(
                f"{place} is {given}, but the ExportedProgram takes {expected}; give an example of this size, or "
                "capture the model again with dynamic_shapes."
            )
        if allowed is not None and given not in (0, 1) and not allowed.lower <= given <= allowed.upper:
            raise _wrong(
                f"{place} is {given}, but the ExportedProgram takes sizes from {allowed.lower} to {allowed.upper}."
            )
    ordered: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return ordered


def _user_inputs(program: ExportedProgram) -> list[tuple[str, Any]]:
    """Returns the name and the fake value of each input; None for a constant."""
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    specs = (spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT)
    return [(spec.arg.name, values.get(spec.arg.name)) for spec in specs]


def _leaves(program: ExportedProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Returns the tensors and constants in the order of the capture."""
    found, expected = pytree.tree_structure((args, kwargs)).num_leaves, program.call_spec.in_spec.num_leaves
    if found != expected:
        raise _wrong(f"The ExportedProgram takes {expected} tensors and constants, but {found} are given.")
    try:
        return list(program.call_spec.in_spec.flatten_up_to((args, kwargs)))
    except ValueError as error:
        raise _wrong(
            f"The arguments do not have the structure with which the ExportedProgram was captured: {error}"
        ) from error


def _check_type(name: str, captured: torch.Tensor, given: Any) -> None:
    """Raises an ArgumentError if an argument is no tensor of the dtype and rank of the captured one."""
    if not isinstance(given, torch.Tensor) or (given.dtype, given.ndim) != (captured.dtype, captured.ndim):
        text = f"{given.dtype} {list(given.shape)}" if isinstance(given, torch.Tensor) else shown(given)
        raise _wrong(
            f"The argument {name!r} is {text}, but the ExportedProgram takes {captured.dtype} {list(captured.shape)}."
        )


def _expression(size: Any) -> Any:
    return sympy.Integer(size) if isinstance(size, int) else symbolic_expression(size)


def _wrong(message: str) -> ArgumentError:
    return ArgumentError(message, id=MessageId.ARGUMENTS_OF_PROGRAM)
