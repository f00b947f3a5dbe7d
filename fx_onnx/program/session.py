"""The module's arguments to the graph's inputs, ONNX Runtime between torch tensors, and outputs back to structure."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils.dlpack import from_dlpack

from fx_onnx.core.dtypes import is_complex, is_float8, onnx_dtype, torch_dtype
from fx_onnx.core.errors import ArgumentError, OnnxExporterError
from fx_onnx.core.torch_private import pytree
from fx_onnx.core.weights import Weight, has_data, real_view

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["bind", "bound", "flat_outputs", "new_session", "run", "structured"]


def new_session(model: str | bytes) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session of a path or bytes, with CUDA if this build has it; logs errors only.

    Products with dequantised weights are computed in float32, as the model says: left to itself ONNX Runtime rounds the
    other factor to 8 bits too (its session option ``session.qdq_matmulnbits_accuracy_level``).
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    available = onnxruntime.get_available_providers()
    wanted = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
    return onnxruntime.InferenceSession(model, sess_options=options, providers=wanted)


# Arguments


def bind(
    graph: ir.Graph, program: ExportedProgram | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """The tensor for each graph input, by name, from the arguments of the exported module.

    Args:
        graph: whose inputs are bound, in order; initializers that are inputs too keep their values.
        program: knows the structure of the arguments and which leaves are constants; without it, or where the
            arguments have another structure, their tensors are taken in order and keyword arguments by input name.
        args: positional arguments.
        kwargs: keyword arguments in any order.

    Raises:
        ArgumentError: too many or too few inputs, or one of another dtype or shape than the graph's.
    """
    values = [value for value in graph.inputs if not value.is_initializer()]
    leaves = _leaves(values, program, args, kwargs)
    if len(leaves) != len(values):
        names = ", ".join(str(value.name) for value in values)
        raise ArgumentError(f"The program takes {len(values)} inputs ({names}), but {len(leaves)} were given.")
    sizes: dict[str, tuple[int, str]] = {}
    inputs: dict[str, torch.Tensor] = {}
    for value, leaf in zip(values, leaves, strict=True):
        tensor = bound(value, leaf)
        _check_axes(value, tensor, sizes)
        inputs[str(value.name)] = tensor
    return inputs


def bound(value: ir.Value, leaf: Any) -> torch.Tensor:
    """The tensor for one graph input.

    Raises:
        ArgumentError: it has another dtype or shape than the input.
    """
    tensor = _tensor(value, leaf)
    _check_type(value, tensor)
    return tensor


def _leaves(
    values: Sequence[ir.Value], program: ExportedProgram | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """The arguments flattened in the order of the graph's inputs, without constants."""
    mismatch: ValueError | None = None
    if program is not None and program.call_spec.in_spec is not None:
        try:
            flat = program.call_spec.in_spec.flatten_up_to((args, kwargs))
        except ValueError as error:
            mismatch = error
        else:
            return _without_constants(program, flat)
    flat = [leaf for leaf in pytree.tree_leaves(args) if leaf is not None]
    named = {name: leaf for name, leaf in kwargs.items() if leaf is not None}
    rest = [str(value.name) for value in values[len(flat) :]]
    if set(named) == set(rest):
        return [*flat, *(named[name] for name in rest)]
    if mismatch is not None:
        raise ArgumentError(
            f"The arguments do not have the structure the model was exported with: {mismatch}"
        ) from mismatch
    raise ArgumentError(f"After {len(flat)} positional inputs the program takes {rest}, not {sorted(named)}.")


def _without_constants(program: ExportedProgram, flat: Sequence[Any]) -> list[Any]:
    """Drops the leaves that were constants at export, after making sure that they are the same constants."""
    user = [spec.arg for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    leaves = []
    for argument, leaf in zip(user, flat, strict=True):
        if not isinstance(argument, ConstantArgument):
            leaves.append(leaf)
        elif isinstance(leaf, (torch.Tensor, np.ndarray)) or leaf != argument.value:
            raise ArgumentError(
                f"The argument {argument.name!r} was {argument.value!r} when the model was exported, which fixed it; "
                f"it cannot be {'a tensor' if isinstance(leaf, torch.Tensor) else repr(leaf)} now."
            )
    return leaves


def _tensor(value: ir.Value, leaf: Any) -> torch.Tensor:
    """One leaf as a tensor with data and without gradient; a Python number takes the input's dtype."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        leaf = torch.as_tensor(leaf)
    if isinstance(leaf, (bool, int, float)):
        dtype = torch_dtype(value.dtype) if value.dtype is not None else None
        if isinstance(leaf, float) and dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise ArgumentError(f"The input {value.name!r} must be {_expected(value)}, but {leaf!r} was given.")
        return torch.tensor(leaf, dtype=dtype)
    if not isinstance(leaf, torch.Tensor):
        raise ArgumentError(
            f"The input {value.name!r} must be {_expected(value)}, but a {type(leaf).__name__} was given."
        )
    if not has_data(Weight(real_view(leaf))):
        raise ArgumentError(f"The input {value.name!r} is a tensor without data (a FakeTensor or on the meta device).")
    tensor = leaf.detach()
    if tensor.is_complex() and not (value.dtype is not None and is_complex(value.dtype)):
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor


def _check_type(value: ir.Value, tensor: torch.Tensor) -> None:
    fits = value.dtype is None or onnx_dtype(tensor.dtype) == value.dtype
    if value.shape is not None:
        fits = fits and len(value.shape) == tensor.dim()
        fits = fits and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(value.shape, tensor.shape, strict=False)
        )
    if not fits:
        given = f"{onnx_dtype(tensor.dtype).name.lower()}[{', '.join(map(str, tensor.shape))}]"
        raise ArgumentError(f"The input {value.name!r} must be {_expected(value)}, but {given} was given.")


def _check_axes(value: ir.Value, tensor: torch.Tensor, sizes: dict[str, tuple[int, str]]) -> None:
    """An axis name stands for one size in all inputs; ONNX Runtime would go on and compute nonsense."""
    for dim, size in zip(value.shape or (), tensor.shape, strict=False):
        if not isinstance(dim, ir.SymbolicDim) or dim.value is None:
            continue
        first, owner = sizes.setdefault(dim.value, (size, str(value.name)))
        if first != size:
            raise ArgumentError(
                f"The axis {dim.value!r} is {first} in the input {owner!r} but {size} in the input {value.name!r}."
            )


def _expected(value: ir.Value) -> str:
    dims = "" if value.shape is None else f"[{', '.join(str(dim) for dim in value.shape)}]"
    return f"{value.dtype.name.lower() if value.dtype is not None else 'a tensor'}{dims}"


# ONNX Runtime


def run(session: onnxruntime.InferenceSession, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """All outputs of a session as new CPU tensors.

    Args:
        session: an ONNX Runtime session.
        inputs: a tensor of the right dtype and shape by input name, of any strides, on any device.

    Raises:
        OnnxExporterError: an output is not a tensor.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = 3
    values = {name: _to_runtime(tensor) for name, tensor in inputs.items()}
    return tuple(_from_runtime(value) for value in session.run_with_ort_values(None, values, options))


def _to_runtime(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    """An OrtValue over the tensor's memory, which it keeps alive."""
    import onnxruntime

    dtype = onnx_dtype(tensor.dtype)
    array = Weight(tensor).numpy()
    if array.dtype.kind == "V" or array.dtype.name.startswith(("float8", "bfloat16")):
        array = array.view(np.uint8 if array.itemsize == 1 else np.uint16)  # ONNX Runtime does not know ml_dtypes
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, int(dtype))


def _from_runtime(value: onnxruntime.OrtValue) -> torch.Tensor:
    """A copy of an output; its own memory may be an initializer of the session."""
    if not value.is_tensor():
        raise OnnxExporterError(f"An output of type {value.data_type()} has no counterpart among torch tensors.")
    dtype = ir.DataType(value.element_type())
    if is_float8(dtype):  # neither NumPy nor DLPack carries these out of ONNX Runtime
        shape = value.shape()
        data = ctypes.string_at(value.data_ptr(), int(np.prod(shape)))
        return torch.from_numpy(np.frombuffer(data, np.uint8).copy()).view(torch_dtype(dtype)).reshape(shape)
    tensor = from_dlpack(value).cpu().clone()
    return tensor.view(torch.bool) if dtype == ir.DataType.BOOL else tensor


# Outputs


def structured(program: ExportedProgram, outputs: Sequence[torch.Tensor]) -> Any:
    """The module's own return value from the graph's outputs in order; what follows the user's outputs is left out.

    Args:
        program: knows the outputs' structure, their constants and which are complex.
        outputs: the graph's outputs, the user's first.
    """
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    rest = iter(outputs)
    leaves: list[Any] = []
    for spec in program.graph_signature.output_specs:
        if spec.kind != OutputKind.USER_OUTPUT:
            continue
        argument = spec.arg
        if isinstance(argument, ConstantArgument):
            leaves.append(argument.value)
        elif isinstance(argument, TensorArgument):
            fake, found = nodes.get(argument.name), next(rest)
            complex_ = isinstance(fake, torch.Tensor) and fake.is_complex() and not found.is_complex()
            leaves.append(torch.view_as_complex(found.contiguous()) if complex_ else found)
        else:  # a symbolic int, float or bool
            leaves.append(next(rest).item())
    return pytree.tree_unflatten(leaves, program.call_spec.out_spec)


def flat_outputs(program: ExportedProgram | None, result: Any) -> list[Any]:
    """What the module returned as the graph returns it: flattened, without None and constants.

    Args:
        program: knows which leaves are constants; without it all that is not a tensor is dropped.
        result: the module's own return value.
    """
    leaves = pytree.tree_leaves(result)
    if program is None:
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    specs = [spec for spec in program.graph_signature.output_specs if spec.kind == OutputKind.USER_OUTPUT]
    return [leaf for spec, leaf in zip(specs, leaves, strict=True) if not isinstance(spec.arg, ConstantArgument)]
