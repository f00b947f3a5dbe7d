"""Checks that example arguments are ones that an ExportedProgram takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.core.arguments import shown
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId
from fx_onnx.core.torch_private import pytree, symbolic_expression

__all__ = ["program_arguments"]


def program_arguments(
    program: ExportedProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns example arguments for an ExportedProgram, the keyword arguments in the order of the capture.

    A symbolic size may be any size in its range that satisfies the relations between the sizes.

    Raises:
        ArgumentError: The arguments do not have the structure, dtypes and shapes that were captured.
    """
    leaves = _leaves(program, args, kwargs)
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    users = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    pairs = [
        (name, placeholders[name].meta.get("val"), leaf)
        for name, leaf in zip(users, leaves, strict=True)
        if name in placeholders
    ]
    tensors = [(name, captured, given) for name, captured, given in pairs if isinstance(captured, torch.Tensor)]
    sizes: dict[Any, int] = {}
    for name, captured, given in tensors:
        _check_type(name, captured, given)
        symbols = zip(map(_expression, captured.shape), given.shape, strict=True)
        sizes.update((symbol, size) for symbol, size in symbols if isinstance(symbol, sympy.Symbol))
    for name, captured, given in tensors:
        for axis, size in enumerate(given.shape):
            _check_size(program, f"{name}.shape[{axis}]", _expression(captured.shape[axis]), size, sizes)
    ordered: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return ordered


def _leaves(program: ExportedProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Returns the tensors and constants in the order of the capture."""
    found, expected = pytree.tree_structure((args, kwargs)).num_leaves, program.call_spec.in_spec.num_leaves
    if found != expected:
        raise ArgumentError(
            f"The ExportedProgram takes {expected} tensors and constants, but {found} are given.",
            id=MessageId.ARGUMENTS_OF_PROGRAM,
        )
    try:
        return list(program.call_spec.in_spec.flatten_up_to((args, kwargs)))
    except ValueError as error:
        raise ArgumentError(
            f"The arguments do not have the structure with which the ExportedProgram was captured: {error}",
            id=MessageId.ARGUMENTS_OF_PROGRAM,
        ) from error


def _expression(size: Any) -> Any:
    return sympy.Integer(size) if isinstance(size, int) else symbolic_expression(size)


def _check_type(name: str, captured: torch.Tensor, given: Any) -> None:
    """Raises an ArgumentError if an argument is no tensor of the dtype and rank of the captured one."""
    if not isinstance(given, torch.Tensor) or (given.dtype, given.ndim) != (captured.dtype, captured.ndim):
        text = f"{given.dtype} {list(given.shape)}" if isinstance(given, torch.Tensor) else shown(given)
        raise ArgumentError(
            f"The argument {name!r} is {text}, but the ExportedProgram takes {captured.dtype} {list(captured.shape)}.",
            id=MessageId.ARGUMENTS_OF_PROGRAM,
        )


def _check_size(
    program: ExportedProgram, place: str, captured: Any, given: int, sizes: Mapping[sympy.Symbol, int]
) -> None:
    """Raises an ArgumentError if a size is not the captured one, or is outside of its range."""
    expected = captured.subs(sizes)
    if expected.is_number and int(expected) != given:
        raise ArgumentError(
            f"{place} is {given}, but the ExportedProgram takes {expected}; give an example of this size, or capture "
            "the model again with dynamic_shapes.",
            id=MessageId.ARGUMENTS_OF_PROGRAM,
        )
    allowed = program.range_constraints.get(captured)
    if allowed is not None and given not in (0, 1) and not allowed.lower <= given <= allowed.upper:
        raise ArgumentError(
            f"{place} is {given}, but the ExportedProgram takes sizes from {allowed.lower} to {allowed.upper}.",
            id=MessageId.ARGUMENTS_OF_PROGRAM,
        )
