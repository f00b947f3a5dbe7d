"""Parses the options that describe example inputs and dynamic dims: ``--input`` and ``--dynamic``."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fx_onnx.messages.arguments import check_dim_name, check_input_names, did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

if TYPE_CHECKING:
    import torch

__all__ = ["export_arguments", "parse_dynamic_dims", "parse_inputs", "random_tensor"]

_TENSOR = re.compile(r"(?P<dtype>[a-z][a-z0-9_]*)\[(?P<shape>[0-9,\s]*)\]")
_MAX_ELEMENTS = 2**31


def parse_inputs(options: Iterable[str]) -> dict[str, Any]:
    """Returns the example inputs that options such as ``x=float32[2,8]`` describe, by name.

    The text after the name is one of:

    - ``dtype[shape]``: a random tensor; ``float32[]`` has no axes. See ``random_tensor`` for its values.
    - ``@file.npy``: the array in a file of NumPy.
    - a literal of Python: a number, True, False, None, a string in quotes, or a tuple or list of these. It is no tensor
      and becomes a constant of the model.

    Raises:
        ArgumentError: an option has another form, or a name occurs twice.
    """
    inputs: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name.isidentifier():
            raise ArgumentError(
                f"--input must be NAME=DTYPE[SHAPE], such as x=float32[2,8], not {shown(option)}.",
                id=MessageId.COMMAND_OPTION,
            )
        if name in inputs:
            raise ArgumentError(f"--input describes {name!r} twice.", id=MessageId.COMMAND_OPTION)
        inputs[name] = _parse_value(name, text.strip())
    return inputs


def _parse_value(name: str, text: str) -> Any:
    if text.startswith("@"):
        return _load_array(name, Path(text[1:]))
    if match := _TENSOR.fullmatch(text):
        import torch

        dtype = getattr(torch, match["dtype"], None)
        if not isinstance(dtype, torch.dtype):
            raise ArgumentError(
                f"--input {name}: torch has no dtype named {match['dtype']!r}.", id=MessageId.COMMAND_OPTION
            )
        shape = [int(size) for size in match["shape"].replace(" ", "").split(",") if size]
        if math.prod(shape) > _MAX_ELEMENTS:
            raise ArgumentError(
                f"--input {name}: the shape {shape} has more than {_MAX_ELEMENTS:,} elements.",
                id=MessageId.COMMAND_OPTION,
            )
        return random_tensor(dtype, shape)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ArgumentError(
            f"--input {name}={text[:80]} is not a tensor such as float32[2,8], a file such as @{name}.npy, or a "
            "literal of Python.",
            id=MessageId.COMMAND_OPTION,
        ) from None


def _load_array(name: str, path: Path) -> torch.Tensor:
    return _loaded(f"--input {name}", path, "a NumPy file of one array")[""]


def calibration_inputs(folder: Path) -> list[dict[str, torch.Tensor]]:
    """Returns the tensors of each ``.npz`` file of a folder, in the order of the names of the files.

    Raises:
        ArgumentError: there is none, or one cannot be read.
    """
    files = sorted(folder.glob("*.npz"))
    if not files:
        raise ArgumentError(
            f"--calibration {folder} has no .npz file, one for each call, with its inputs by name.",
            id=MessageId.COMMAND_OPTION,
        )
    return [_loaded("--calibration", path, "an .npz file of tensors") for path in files]


def _loaded(option: str, path: Path, kind: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of an ``.npz`` file by name, or of an ``.npy`` file with the name ``""``."""
    import numpy as np
    import torch

    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = dict(loaded) if option == "--calibration" else {"": loaded}
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    except Exception as error:  # NumPy raises whatever its parsers raise for a damaged file
        # NumPy takes any other file for a pickle, and proposes to load it unsafely.
        reason = "." if "allow_pickle" in str(error) else f": {error}"
        raise ArgumentError(f"{option}: {path} is not {kind}{reason}", id=MessageId.COMMAND_OPTION) from None


def random_tensor(dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Returns a tensor of random values that most models accept.

    The values are normally distributed for floating-point and complex dtypes, 0 and 1 for integers and bool. These
    integers are valid indices wherever a size is at least 2.
    """
    import torch

    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(tuple(shape), dtype=wide).to(dtype)
    return torch.randint(0, 2, tuple(shape)).to(dtype)


def parse_dynamic_dims(options: Iterable[str], names: Iterable[str]) -> dict[str, dict[int, str] | None]:
    """Returns the ``dynamic_shapes`` that options such as ``x:0=batch`` or ``x:0=batch,1=length`` describe.

    Args:
        options: the options.
        names: the names of the inputs. An input without an option is static.

    Raises:
        ArgumentError: an option has another form, an input does not exist, or an axis occurs twice.
    """
    dims: dict[str, dict[int, str]] = {name: {} for name in names}
    for option in options:
        name, colon, axes = option.partition(":")
        if not colon:
            raise ArgumentError(
                f"--dynamic must be NAME:AXIS=DIM, such as x:0=batch, not {shown(option)}.", id=MessageId.COMMAND_OPTION
            )
        if name not in dims:
            raise ArgumentError(
                f"--dynamic names the input {name!r}, but the inputs are {', '.join(dims) or 'none'}"
                f"{did_you_mean(name, dims) or '.'}",
                id=MessageId.COMMAND_OPTION,
            )
        for entry in axes.split(","):
            axis, equals, dim = entry.strip().partition("=")
            if not equals or not re.fullmatch(r"-?\d+", axis):
                raise ArgumentError(
                    f"--dynamic must be NAME:AXIS=DIM, such as x:0=batch, not {shown(option)}.",
                    id=MessageId.COMMAND_OPTION,
                )
            check_dim_name(f"--dynamic {name}: the dim name", dim, id=MessageId.COMMAND_OPTION)
            if int(axis) in dims[name]:
                raise ArgumentError(f"--dynamic names axis {axis} of {name!r} twice.", id=MessageId.COMMAND_OPTION)
            dims[name][int(axis)] = dim
    return {name: axes or None for name, axes in dims.items()}


def export_arguments(source: Any, given: dict[str, Any], dynamic: list[str]) -> dict[str, Any]:
    """Returns the arguments of ``export()`` that describe the inputs.

    The names of ``--input`` are either parameters of the forward, or names for its first positional parameters.

    Raises:
        ArgumentError: there are no inputs, or only some of the names are parameters.
    """
    if source.has_inputs and (given or (dynamic and source.dynamic_shapes)):
        option = "--input" if given else "--dynamic"
        raise ArgumentError(f"The source has its own inputs; leave out {option}.", id=MessageId.COMMAND_OPTION)
    if source.has_inputs:
        own = {"args": source.args, "kwargs": source.kwargs, "dynamic_shapes": source.dynamic_shapes}
        names = _input_names(source) if dynamic else []
        return own | ({"dynamic_shapes": parse_dynamic_dims(dynamic, names), "input_names": names} if names else {})
    shapes = parse_dynamic_dims(dynamic, given) if dynamic else None
    parameters = _parameter_names(source.model)
    unknown = [name for name in given if name not in parameters]
    if not unknown:
        return {"kwargs": given, "dynamic_shapes": shapes}
    if len(unknown) < len(given):
        check_input_names(unknown, parameters, MessageId.COMMAND_OPTION)
    return {
        "args": tuple(given.values()),
        "input_names": list(given),
        "dynamic_shapes": tuple(shapes.values()) if shapes is not None else None,
    }


def _input_names(source: Any) -> list[str]:
    """Returns the names of the inputs that a source contains; a tensor in a dict or a list is named by its path."""
    import torch

    from fx_onnx.onnx_model.names import Names
    from fx_onnx.requests.forward_parameters import module_parameters
    from fx_onnx.torch_internals.torch_private import pytree

    if isinstance(source.model, torch.export.ExportedProgram):
        return [name for name in source.model.graph_signature.user_inputs if isinstance(name, str)]  # not constants
    parameters, names = module_parameters(source.model, source.args, source.kwargs), Names()
    leaves = pytree.tree_leaves_with_path({name: parameters.values[name] for name in parameters.input_order})
    paths = [re.sub(r"\W+", "_", pytree.keystr(path)).strip("_") for path, value in leaves if torch.is_tensor(value)]
    return list(map(names.unique, paths))


def _parameter_names(model: Any) -> list[str]:
    import inspect

    import torch

    if isinstance(model, torch.jit.ScriptModule):  # its forward has a schema instead of a signature
        script: Any = model.forward
        return [argument.name for argument in script.schema.arguments[1:]]
    parameters = inspect.signature(model.forward).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
