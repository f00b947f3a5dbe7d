"""Binds the arguments of a call to the inputs of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from fx_onnx.messages.arguments import check_mapping, check_name, counted, did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.dtypes import is_complex, onnx_dtype, torch_dtype
from fx_onnx.onnx_model.weights import Weight, has_data, real_view
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["bind", "bind_input", "call_arguments", "user_inputs", "user_leaves"]


def bind(
    graph: ir.Graph, program: ExportedProgram | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """Returns a tensor for each graph input, by name, from the arguments of the exported module.

    Args:
        graph: the graph. Initializers that are also inputs keep their values.
        program: defines the structure of the arguments, and which of their leaves are constants. Without it, or if the
            arguments have another structure, positional tensors are bound in order, and keyword arguments, or a dict
            alone, by input name.
        args: positional arguments.
        kwargs: keyword arguments in any order.

    Raises:
        ArgumentError: there are too many or too few inputs, or an input does not have the dtype or shape of the graph
            input.
    """
    values = [value for value in graph.inputs if not value.is_initializer()]
    leaves = _leaves(values, program, args, kwargs)
    if len(leaves) != len(values):
        names = ", ".join(str(value.name) for value in values)
        raise ArgumentError(
            f"The program takes {counted(len(values), 'input')} ({names}), but the call gives {len(leaves)}.",
            id=MessageId.CALL_OF_PROGRAM,
        )
    sizes: dict[str, tuple[int, str]] = {}
    inputs: dict[str, torch.Tensor] = {}
    for value, leaf in zip(values, leaves, strict=True):
        tensor = bind_input(value, leaf)
        _check_axes(value, tensor, sizes)
        inputs[str(value.name)] = tensor
    return inputs


def bind_input(value: ir.Value, leaf: Any) -> torch.Tensor:
    """Returns the tensor for one graph input.

    Raises:
        ArgumentError: ``leaf`` does not have the dtype or shape of the graph input.
    """
    tensor = _to_tensor(value, leaf)
    _check_type(value, tensor)
    return tensor


def call_arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a call that were given as a sequence, or as one tensor, and as a mapping or None.

    Raises:
        ArgumentError: they have another form.
    """
    if isinstance(args, (torch.Tensor, np.ndarray)):
        args = (args,)
    if not isinstance(args, (tuple, list)):
        raise ArgumentError(
            f"args must be a tuple of the arguments or one tensor, not {shown(args)}.", id=MessageId.CALL_OF_PROGRAM
        )
    check_mapping("kwargs", kwargs, "argument names and values")
    named = dict(kwargs or {})
    for name in named:
        check_name("The name of an argument in kwargs", name)
    return tuple(args), named


def user_inputs(program: ExportedProgram) -> list[Any]:
    """Returns the inputs of the exported module in order, those of constants included; each has a ``name``."""
    return [spec.arg for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]


def user_leaves(
    program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any], options: Sequence[str] = ()
) -> list[Any]:
    """Returns the arguments, flattened in the order of ``user_inputs``.

    Args:
        program: the captured program.
        args: the positional arguments.
        kwargs: the keyword arguments.
        options: the keywords that the called function has itself, for the message.

    Raises:
        ArgumentError: they have another structure than those of the export.
    """
    try:
        leaves: list[Any] = program.call_spec.in_spec.flatten_up_to((tuple(args), dict(kwargs)))
    except ValueError as error:
        names = [str(argument.name) for argument in user_inputs(program)]
        given = f"{len(args)} positional {'argument' if len(args) == 1 else 'arguments'}"
        if kwargs:
            given += f" and {', '.join(map(repr, kwargs))} by keyword"
        hint = next(filter(None, (did_you_mean(name, options) for name in kwargs if name not in names)), ".")
        if any(name in names for name in kwargs):
            hint = "; give each by position or by keyword as the export got it."
        raise ArgumentError(
            f"The arguments do not have the structure with which the model was exported: its inputs are "
            f"{', '.join(names)}, and the call gives {given}{hint}",
            id=MessageId.CALL_OF_PROGRAM,
        ) from error
    return leaves


def _leaves(
    values: Sequence[ir.Value], program: ExportedProgram | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Returns the arguments without constants, flattened in the order of the graph inputs."""
    mismatch: ArgumentError | None = None
    if program is not None and program.call_spec.in_spec is not None:
        try:
            flat = user_leaves(program, args, kwargs)
        except ArgumentError as error:
            mismatch = error
        else:
            if not any(isinstance(leaf, Mapping) for leaf in flat):
                return _without_constants(program, flat)
    if isinstance(feed := next(iter(args), None), Mapping) and len(args) == 1 and not kwargs:
        args, kwargs = (), dict(feed)  # inputs by name, as for a session of ONNX Runtime
    flat = [leaf for leaf in pytree.tree_leaves(args) if leaf is not None]
    named = {name: leaf for name, leaf in kwargs.items() if leaf is not None}
    rest = [str(value.name) for value in values[len(flat) :]]
    if set(named) == set(rest):
        return [*flat, *(named[name] for name in rest)]
    raise mismatch or ArgumentError(
        f"After {len(flat)} positional inputs the program takes {rest}, not {sorted(named)}.",
        id=MessageId.CALL_OF_PROGRAM,
    )


def _without_constants(program: ExportedProgram, flat: Sequence[Any]) -> list[Any]:
    """Returns the leaves that are graph inputs, and checks that the others equal the constants at export."""
    leaves = []
    for argument, leaf in zip(user_inputs(program), flat, strict=True):
        if not isinstance(argument, ConstantArgument):
            leaves.append(leaf)
        elif isinstance(leaf, (torch.Tensor, np.ndarray)) or leaf != argument.value:
            raise ArgumentError(
                f"The argument {argument.name!r} must be {argument.value!r}, a constant of the exported model, "
                f"not {'a tensor' if isinstance(leaf, torch.Tensor) else repr(leaf)}.",
                id=MessageId.CALL_OF_PROGRAM,
            )
    return leaves


def _to_tensor(value: ir.Value, leaf: Any) -> torch.Tensor:
    """Returns one leaf as a detached tensor. A Python number gets the dtype of the input."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        leaf = _from_numpy(leaf, str(value.name))
    if isinstance(leaf, (bool, int, float)):
        dtype = torch_dtype(value.dtype) if value.dtype is not None else None
        if isinstance(leaf, float) and dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise ArgumentError(
                f"The input {value.name!r} must be {_expected_type(value)}, but {leaf!r} was given.",
                id=MessageId.CALL_OF_PROGRAM,
            )
        return torch.tensor(leaf, dtype=dtype)
    if not isinstance(leaf, torch.Tensor):
        raise ArgumentError(
            f"The input {value.name!r} must be {_expected_type(value)}, but a {type(leaf).__name__} was given.",
            id=MessageId.CALL_OF_PROGRAM,
        )
    if leaf.layout != torch.strided or leaf.is_quantized:
        raise ArgumentError(
            f"The input {value.name!r} must be a dense tensor, not a sparse or quantized one.",
            id=MessageId.CALL_OF_PROGRAM,
        )
    if not has_data(Weight(real_view(leaf))):
        raise ArgumentError(
            f"The input {value.name!r} is a tensor without data (a FakeTensor or on the meta device).",
            id=MessageId.CALL_OF_PROGRAM,
        )
    tensor = leaf.detach()
    if tensor.is_complex() and not (value.dtype is not None and is_complex(value.dtype)):
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor


def _from_numpy(array: Any, name: str) -> torch.Tensor:
    """Returns an array as a tensor.

    Raises:
        ArgumentError: torch has no such dtype.
    """
    try:
        return torch.as_tensor(array)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"The input {name!r} is an array of {array.dtype}, which torch does not have; convert it to a dtype of "
            "torch.",
            id=MessageId.CALL_OF_PROGRAM,
        ) from error


def _check_type(value: ir.Value, tensor: torch.Tensor) -> None:
    """Raises ArgumentError if the tensor does not have the dtype, the rank and the static sizes of the input."""
    fits = value.dtype is None or onnx_dtype(tensor.dtype) == value.dtype
    if value.shape is not None:
        fits = fits and len(value.shape) == tensor.dim()
        fits = fits and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(value.shape, tensor.shape, strict=False)
        )
    if not fits:
        given = f"{onnx_dtype(tensor.dtype).name.lower()}[{', '.join(map(str, tensor.shape))}]"
        raise ArgumentError(
            f"The input {value.name!r} must be {_expected_type(value)}, but {given} was given.",
            id=MessageId.CALL_OF_PROGRAM,
        )


def _check_axes(value: ir.Value, tensor: torch.Tensor, sizes: dict[str, tuple[int, str]]) -> None:
    """Raises ArgumentError if two inputs have different sizes for one axis name.

    ONNX Runtime does not check this; it computes wrong results.
    """
    for dim, size in zip(value.shape or (), tensor.shape, strict=False):
        if not isinstance(dim, ir.SymbolicDim) or dim.value is None:
            continue
        first, owner = sizes.setdefault(dim.value, (size, str(value.name)))
        if first != size:
            raise ArgumentError(
                f"The axis {dim.value!r} is {first} in the input {owner!r} but {size} in the input {value.name!r}.",
                id=MessageId.CALL_OF_PROGRAM,
            )


def _expected_type(value: ir.Value) -> str:
    """Returns the dtype and shape of an input as text, for example ``float[batch, 8]``."""
    dims = "" if value.shape is None else f"[{', '.join(str(dim) for dim in value.shape)}]"
    return f"{value.dtype.name.lower() if value.dtype is not None else 'a tensor'}{dims}"
