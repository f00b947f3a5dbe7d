"""Runs a model in ONNX Runtime, and restores the structure of the outputs."""

from __future__ import annotations

import ctypes
import io
import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, TensorArgument
from torch.utils.dlpack import from_dlpack

from fx_onnx.core import metadata
from fx_onnx.core.arguments import did_you_mean, shown
from fx_onnx.core.dtypes import (
    is_float8,
    is_sub_byte,
    is_unsigned,
    onnx_dtype,
    storage_dtype,
    torch_dtype,
)
from fx_onnx.core.errors import ArgumentError, OnnxExporterError
from fx_onnx.core.findings import warn
from fx_onnx.core.messages import MessageId
from fx_onnx.core.progress import hide_progress
from fx_onnx.core.torch_private import pytree
from fx_onnx.core.user_outputs import graph_leaves, is_graph_output, result_specs
from fx_onnx.core.weights import Weight
from fx_onnx.passes.traversal import all_nodes, graphs_of
from fx_onnx.program import save
from fx_onnx.program.reference_session import ReferenceSession, refused_opset
from fx_onnx.program.runtime_errors import explain_runtime_errors

if TYPE_CHECKING:
    import onnxruntime

__all__ = [
    "Session", "compute_values", "flatten_outputs", "is_loaded_from_file", "load", "loadable",
    "new_session", "refuse_fallback", "restore_structure", "run_session",
]  # fmt: skip


Session: TypeAlias = "onnxruntime.InferenceSession | ReferenceSession"
"""What runs a model."""

_FROM_FILE_BYTES = 16 * 1024**2
"""Above this size of the weights a session is loaded from a temporary file, which ONNX Runtime maps.

It copies the weights of a model given as bytes twice: a model of 256 MiB then takes three times the memory, and twice
the time to load.
"""


def new_session(
    model: str | bytes, provider: str | None = None, *, optimized: bool = True
) -> onnxruntime.InferenceSession:
    """Returns an ONNX Runtime session for a model file or its bytes. It uses CUDA if available, and logs errors only.

    The session multiplies by dequantized weights in float32, as the model specifies. The default of ONNX Runtime also
    rounds the other operand to 8 bits (the option ``session.qdq_matmulnbits_accuracy_level``). The session keeps
    Dropout nodes, because the optimizer EliminateDropout also removes those in training mode.

    Args:
        model: the path or the bytes of the model.
        provider: the execution provider, such as ``CPUExecutionProvider``; None is CUDA if available, then the CPU.
        optimized: whether ONNX Runtime optimizes the graph.

    Raises:
        ArgumentError: this ONNX Runtime does not have the provider.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    available = onnxruntime.get_available_providers()
    if provider is not None and provider not in available:
        is_known = provider in onnxruntime.get_all_providers()  # a provider that another build has is no typing error
        hint = ("" if is_known else did_you_mean(provider, available)) or f"; it has {', '.join(available)}."
        raise ArgumentError(f"This ONNX Runtime has no provider {shown(provider)}{hint}", id=MessageId.PROVIDER)
    default = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
    wanted = default if provider is None else [provider]
    kept = ["EliminateDropout"]
    return onnxruntime.InferenceSession(model, sess_options=options, providers=wanted, disabled_optimizers=kept)


def is_loaded_from_file(model: ir.Model) -> bool:
    """Returns whether a session loads the model from a temporary file, which ONNX Runtime maps into memory."""
    return save.parameter_bytes(model) > _FROM_FILE_BYTES


def loadable(model: ir.Model, folder: Path | None) -> str | bytes:
    """Returns what a session loads: the bytes of the model, or a path in ``folder`` if the model is large."""
    with hide_progress():  # the bytes would be steps of the stage that loads the session
        if folder is not None and is_loaded_from_file(model):
            path = folder / "model.onnx"
            save.save(model, path, external_data=True, durable=False)
            return str(path)
        buffer = io.BytesIO()
        save.save(model, buffer)
        return buffer.getvalue()


def load(model: ir.Model, folder: Path | None, provider: str | None = None, *, optimized: bool = True) -> Session:
    """Returns a session of ONNX Runtime, or the reference evaluator if the installed one does not load the opset.

    A warning tells of the evaluator.

    Args:
        model: the model.
        folder: receives the model if its weights are large, or None.
        provider: as for ``new_session``. With a provider, ONNX Runtime runs the model or fails.
        optimized: as for ``new_session``.

    Raises:
        ArgumentError: this ONNX Runtime does not have the provider.
        OnnxExporterError: ONNX Runtime does not load the opset, and the evaluator cannot run the model.
    """
    if provider is None and (refused := refused_opset(model)):
        warn(refused, MessageId.RUNTIME)
        return ReferenceSession(model)
    return new_session(loadable(model, folder), provider, optimized=optimized)


def refuse_fallback(model: ir.Model) -> None:
    """Raises ArgumentError if the model calls operators of torch, for which a runtime needs an extension."""
    nodes = chain.from_iterable(map(all_nodes, graphs_of(model)))
    found = sorted({node.meta[metadata.FALLBACK] for node in nodes if metadata.FALLBACK in node.meta})
    if found:
        raise ArgumentError(
            f"The program cannot run, because no runtime has the operators of torch that operator_export_type kept: "
            f"{', '.join(found)}.",
            id=MessageId.CALL_OF_PROGRAM,
        )


# ONNX Runtime


def run_session(session: Session, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Runs a session and returns all outputs as new CPU tensors.

    Args:
        session: what ``load`` or ``new_session`` returned.
        inputs: input name → a tensor with the dtype and shape of the input. Strides and device are arbitrary.

    Raises:
        OnnxExporterError: an output is not a tensor.
    """
    if isinstance(session, ReferenceSession):
        return session.run(inputs)
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = 3
    values = {name: _to_runtime(tensor) for name, tensor in inputs.items()}
    return tuple(_from_runtime(value) for value in session.run_with_ort_values(None, values, options))


def compute_values(
    model: ir.Model, inputs: Mapping[str, torch.Tensor], value_names: Sequence[str]
) -> tuple[torch.Tensor, ...]:
    """Runs a model and returns any values of its main graph, by name and in order.

    Raises:
        ArgumentError: the main graph has no value with one of the names.
    """
    model = model.clone()  # the weights are shared
    values: dict[str | None, ir.Value] = {value.name: value for value in model.graph.inputs}
    values.update(model.graph.initializers)
    values.update((value.name, value) for node in model.graph for value in node.outputs)
    missing = [name for name in value_names if name not in values]
    if missing:
        raise ArgumentError(f"The graph has no value named {shown(missing[0])}.", id=MessageId.CALL_OF_PROGRAM)
    unique = dict.fromkeys(value_names)
    model.graph.outputs.clear()
    model.graph.outputs.extend(values[name] for name in unique)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with explain_runtime_errors(model):
            session = load(model, Path(folder))
            found = dict(zip(unique, run_session(session, inputs), strict=True))
        del session  # it maps a file in the folder, which is removed next
    return tuple(found[name] for name in value_names)


def _to_runtime(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    """Returns an OrtValue that shares the memory of the tensor and keeps it alive."""
    import onnxruntime

    dtype = onnx_dtype(tensor.dtype)
    array = Weight(tensor).numpy()
    if array.dtype.kind == "V" or array.dtype.name.startswith(("float8", "bfloat16")):
        array = array.view(
            np.uint8 if array.itemsize == 1 else np.uint16
        )  # ONNX Runtime does not support the dtypes of ml_dtypes
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, int(dtype))


def _from_runtime(value: onnxruntime.OrtValue) -> torch.Tensor:
    """Returns a copy of an output, because the memory of the output may be an initializer of the session."""
    if not value.is_tensor():
        raise OnnxExporterError(
            f"An output of type {value.data_type()} cannot be converted to a torch tensor.",
            id=MessageId.CALL_OF_PROGRAM,
        )
    dtype = ir.DataType(value.element_type())
    if is_float8(dtype):  # ONNX Runtime exports these dtypes neither to NumPy nor through DLPack
        shape = value.shape()
        data = ctypes.string_at(value.data_ptr(), int(np.prod(shape)))
        return torch.from_numpy(np.frombuffer(data, np.uint8).copy()).view(torch_dtype(dtype)).reshape(shape)
    if is_sub_byte(dtype):
        return _unpacked(value, dtype)
    # An empty output of ONNX Runtime 1.32 has the strides 0, which view_as_complex refuses.
    tensor = from_dlpack(value).cpu().clone(memory_format=torch.contiguous_format)
    return tensor.view(torch.bool) if dtype == ir.DataType.BOOL else tensor


def _unpacked(value: onnxruntime.OrtValue, dtype: ir.DataType) -> torch.Tensor:
    """Returns an output of 2-bit or 4-bit integers, which share bytes, as int8 or uint8."""
    bits, shape = dtype.bitwidth, value.shape()
    per_byte, count = 8 // bits, int(np.prod(shape))
    packed = np.frombuffer(ctypes.string_at(value.data_ptr(), -(-count // per_byte)), np.uint8)
    numbers = (packed[:, None] >> np.arange(0, 8, bits)) % (1 << bits)  # the first number is in the lowest bits
    if not is_unsigned(dtype):
        numbers = (numbers ^ (1 << bits - 1)) - (1 << bits - 1)
    return torch.from_numpy(numbers.reshape(-1)[:count].reshape(shape)).to(storage_dtype(dtype))


# Outputs


def restore_structure(program: ExportedProgram, outputs: Sequence[torch.Tensor]) -> Any:
    """Returns the outputs in the structure that the module returns. Updated buffers and inputs are left out.

    Args:
        program: defines the structure of the outputs, their constants, and which outputs are complex.
        outputs: the graph outputs. The outputs of the module come first.
    """
    fakes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    rest = iter(outputs)
    leaves = [
        _restored(spec.arg, next(rest) if is_graph_output(spec) else None, fakes) for spec in result_specs(program)
    ]
    return pytree.tree_unflatten(leaves, program.call_spec.out_spec)


def _restored(argument: Any, found: Any, fakes: Mapping[str, Any]) -> Any:
    """Returns one result as the module returns it: a tensor, a complex tensor, or a constant."""
    if isinstance(argument, ConstantArgument):
        return argument.value
    if not isinstance(argument, TensorArgument):  # a symbolic int, float or bool
        return found.item()
    fake = fakes.get(argument.name)
    is_real_view = isinstance(fake, torch.Tensor) and fake.is_complex() and not found.is_complex()
    return torch.view_as_complex(found.contiguous()) if is_real_view else found


def flatten_outputs(program: ExportedProgram | None, result: Any) -> list[Any]:
    """Returns the result of the module as the graph returns it: flattened, without None.

    Args:
        program: defines which leaves are outputs. Without it, the tensors and numbers are.
        result: the return value of the module.
    """
    leaves = pytree.tree_leaves(result)
    if program is None:
        return [leaf for leaf in leaves if isinstance(leaf, (torch.Tensor, int, float))]
    return graph_leaves(program, leaves)
