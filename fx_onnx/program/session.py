"""Runs a model in ONNX Runtime, and restores the structure of the outputs."""

from __future__ import annotations

import ctypes
import functools
import io
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, TensorArgument
from torch.utils.dlpack import from_dlpack

from fx_onnx.files import save
from fx_onnx.messages.arguments import did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError, OnnxExporterError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.progress import hide_progress
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.dtypes import is_float8, is_sub_byte, is_unsigned, onnx_dtype, storage_dtype, torch_dtype
from fx_onnx.onnx_model.opsets import MAXIMUM_OPSET, ir_version
from fx_onnx.onnx_model.weights import Weight
from fx_onnx.passes.traversal import all_nodes, graphs_of
from fx_onnx.program.reference_session import ReferenceSession, reason_not_run
from fx_onnx.requests.user_outputs import graph_leaves, is_graph_output, result_specs
from fx_onnx.torch_internals.torch_private import pytree
from fx_onnx.translation.translation_origins import TranslationOrigins

if TYPE_CHECKING:
    import onnxruntime

__all__ = [
    "LoadedModel",
    "compute_values",
    "explain_runtime_errors",
    "flatten_outputs",
    "is_loaded",
    "new_session",
    "refuse_fallback",
    "refused_opset",
    "restore_structure",
    "run_session",
]


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
    """Returns an ONNX Runtime session for a model file or its bytes. It uses CUDA if available.

    The session multiplies by dequantized weights in float32, as the model specifies. The default of ONNX Runtime also
    rounds the other operand to 8 bits (the option ``session.qdq_matmulnbits_accuracy_level``). Operators between
    QuantizeLinear and DequantizeLinear compute in floats, as the model specifies (``session.disable_quant_qdq``):
    kernels of integers saturate sums of two products at 16 bits on x64 processors without VNNI. The session keeps
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
    options.log_severity_level = 4  # an error is an exception with the same text
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    options.add_session_config_entry("session.disable_quant_qdq", "1")
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


class LoadedModel:
    """A model that ONNX Runtime has loaded: from bytes, or from a temporary file if its weights are large.

    If the installed ONNX Runtime does not load the opset, the reference evaluator runs the model, and a warning says
    so. With a provider, ONNX Runtime runs the model or fails.

    As a context manager it releases the session and the file at the end.
    """

    def __init__(
        self,
        model: ir.Model,
        start: Callable[[str | bytes], onnxruntime.InferenceSession] | None = None,
        *,
        provider: str | None = None,
        optimized: bool = True,
        origins: TranslationOrigins | None = None,
    ) -> None:
        """Loads the model.

        Args:
            model: the model.
            start: creates the session from the path or the bytes of the model; None is ``new_session``.
            provider: as for ``new_session``.
            optimized: as for ``new_session``.
            origins: which functions translated the nodes, for the message of an error.

        Raises:
            ArgumentError: this ONNX Runtime does not have the provider, or the model calls operators of torch.
            OnnxExporterError: ONNX Runtime cannot load the model, or does not load the opset, and the evaluator
                cannot run the model.
        """
        if start is None:
            refuse_fallback(model)
        self._model = model
        is_large = save.parameter_bytes(model) > _FROM_FILE_BYTES
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True) if is_large else None
        if self._folder is not None:
            weakref.finalize(self, self._folder.cleanup)
        with explain_runtime_errors(model, origins) if start is None else nullcontext():
            self._session: Session
            if start is None and provider is None and (refused := refused_opset(model)):
                warn(refused, MessageId.RUNTIME)
                self._session = ReferenceSession(model)
                return
            source = _loadable(model, Path(self._folder.name) if self._folder is not None else None)
            self._session = new_session(source, provider, optimized=optimized) if start is None else start(source)

    def run(self, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Returns all outputs; see ``run_session``.

        Raises:
            OnnxExporterError: ONNX Runtime fails, or an output is not a tensor.
        """
        with explain_runtime_errors(self._model, is_loaded=True):
            return run_session(self._session, inputs)

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the session, and then the file that it maps."""
        del self._session
        if self._folder is not None:
            self._folder.cleanup()


def _loadable(model: ir.Model, folder: Path | None) -> str | bytes:
    """Returns what a session loads: a path in the folder, or the bytes of the model without one."""
    with hide_progress():  # the bytes would be steps of the stage that loads the session
        if folder is not None:
            path = folder / "model.onnx"
            save.save(model, path, external_data=True, durable=False)
            return str(path)
        buffer = io.BytesIO()
        save.save(model, buffer)
        return buffer.getvalue()


def refuse_fallback(model: ir.Model) -> None:
    """Raises ArgumentError if the model calls operators of torch, for which a runtime needs an extension."""
    nodes = chain.from_iterable(map(all_nodes, graphs_of(model)))
    operators = sorted({node.meta[metadata.FALLBACK] for node in nodes if metadata.FALLBACK in node.meta})
    if operators:
        raise ArgumentError(
            f"The program cannot run, because no runtime has the operators of torch that operator_export_type kept: "
            f"{', '.join(operators)}.",
            id=MessageId.CALL_OF_PROGRAM,
        )


@functools.cache
def is_loaded(opset: int) -> bool:
    """Returns whether the installed ONNX Runtime loads a model of an opset, which a model of one node tells."""
    import onnxruntime

    header = f'<ir_version: {ir_version(opset)}, opset_import: ["" : {opset}]>'
    proto = onnx.parser.parse_model(f"{header} probe (float[1] x) => (float[1] y) {{ y = Identity(x) }}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with suppress(OnnxExporterError), explain_runtime_errors(ir.serde.deserialize_model(proto)):
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return True
    return False


def refused_opset(model: ir.Model) -> str:
    """Returns a sentence if the installed ONNX Runtime does not load the opset of a model; empty if it does.

    Raises:
        OnnxExporterError: it does not, and the reference evaluator computes a node of the model wrongly.
    """
    import onnxruntime

    opset = model.graph.opset_imports.get("")
    if opset is None or opset > MAXIMUM_OPSET or is_loaded(opset):
        return ""
    refused = f"ONNX Runtime {onnxruntime.__version__} does not load opset {opset}"
    for node in chain.from_iterable(map(all_nodes, graphs_of(model))):
        if reason := reason_not_run(node, model):
            raise OnnxExporterError(
                f"{refused}, and onnx's reference evaluator cannot run {node.op_type} ({node.name}): {reason}.",
                id=MessageId.RUNTIME,
            )
    return f"{refused}, so onnx's reference evaluator computes the results."


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
    values = {name: _to_runtime(tensor) for name, tensor in inputs.items()}
    return tuple(_from_runtime(value) for value in session.run_with_ort_values(None, values))


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
        raise ArgumentError(
            f"The graph has no value named {shown(missing[0])}; program.text() shows the names.",
            id=MessageId.CALL_OF_PROGRAM,
        )
    unique = dict.fromkeys(value_names)
    model.graph.outputs.clear()
    model.graph.outputs.extend(values[name] for name in unique)
    with LoadedModel(model) as loaded:
        results = dict(zip(unique, loaded.run(inputs), strict=True))
    return tuple(results[name] for name in value_names)


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
            f"An output of type {value.data_type()} cannot be converted to a torch tensor; run the saved file with "
            "onnxruntime.InferenceSession.",
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


def _restored(argument: Any, value: Any, fakes: Mapping[str, Any]) -> Any:
    """Returns one result as the module returns it: a tensor, a complex tensor, or a constant.

    A number is that of the captured program, unless the data chose another one: the program is one path of the model.
    """
    if isinstance(argument, ConstantArgument):
        constant: Any = argument.value
        is_same = value is None or torch.equal(value, torch.tensor(constant).to(value.dtype))
        return constant if is_same else value.item()
    if not isinstance(argument, TensorArgument):  # a symbolic int, float or bool
        return value.item()
    fake = fakes.get(argument.name)
    is_real_view = isinstance(fake, torch.Tensor) and fake.is_complex() and not value.is_complex()
    return torch.view_as_complex(value.contiguous()) if is_real_view else value


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


# ---------------------------------------------------------------- errors of ONNX Runtime

_DOMAINS = ("ai.onnx", "com.microsoft", "com.ms.", "org.pytorch.aten")
"""How the domains begin whose operators are built into some build of ONNX Runtime."""


@contextmanager
def explain_runtime_errors(
    model: ir.Model, origins: TranslationOrigins | None = None, *, is_loaded: bool = False
) -> Iterator[None]:
    """Turns an error of ONNX Runtime into an OnnxExporterError of one sentence.

    Args:
        model: the model that ONNX Runtime loads or runs.
        origins: which functions translated the nodes of the model; None if that is unknown.
        is_loaded: whether the session exists, so that it has all operators.

    Raises:
        OnnxExporterError: ONNX Runtime lacks an operator of another domain than ONNX's, rejects the model, or fails at
            a node. The message names the operator, the user's translation and the line of the model's code.
    """
    try:
        yield
    except Exception as error:
        # The classes of these errors have no common base class.
        if type(error).__module__.startswith("onnxruntime") or type(error) is RuntimeError:
            text = ("" if is_loaded else _missing_operator(model, origins)) or _failure(model, str(error))
            raise OnnxExporterError(text, id=MessageId.RUNTIME) from error
        raise


def _missing_operator(model: ir.Model, origins: TranslationOrigins | None) -> str:
    """Returns a sentence about the first operator of a domain that ONNX Runtime does not have; empty without one."""
    local = {(function.domain, function.name) for function in model.functions.values()}
    for node in chain.from_iterable(map(all_nodes, graphs_of(model))):
        if not node.domain or node.domain.startswith(_DOMAINS) or (node.domain, node.op_type) in local:
            continue
        return (
            f"ONNX Runtime has no operator {node.domain}::{node.op_type}, {_purpose(node, origins)}; load the library "
            "that has it in the session of program.initialize_inference_session()."
        )
    return ""


def _purpose(node: ir.Node, origins: TranslationOrigins | None) -> str:
    """Returns the clause about the ATen operator of a node, its translation and its line."""
    _, _, name = node.metadata_props.get(metadata.NAMESPACE, "").rpartition(": ")[0].rpartition("/")
    translations = origins.custom_texts(name) if origins is not None else ""
    made = f"which the translation {translations} emits" if translations else "which a node of the model calls"
    return made + _origin("for", node)


def _origin(word: str, node: ir.Node | None) -> str:
    """Returns `` for aten.add (model.py:12)``, with the word before the operator; without what is not known."""
    if node is None:
        return ""
    operator, line = metadata.operator_of(node.metadata_props), metadata.source_line(node.metadata_props)
    return f"{f' {word} {operator}' if operator else ''}{f' ({line})' if line else ''}"


def _failure(model: ir.Model, text: str) -> str:
    """Returns a sentence about a node that failed, or about a model that was not loaded."""
    reason = " ".join(text.split()).removeprefix("[ONNXRuntimeError] :").strip()
    match = re.search(r"while running (\w+) node\. Name:'([^']*)' Status Message: (.*)", reason)
    if match is None:
        return f"ONNX Runtime does not run the model: {re.sub(r'^[0-9]+ : [A-Z_]+ : ', '', reason)}"
    nodes = chain.from_iterable(map(all_nodes, graphs_of(model)))
    node = next((candidate for candidate in nodes if candidate.name == match[2]), None)
    _, _, words = match[3].rpartition(" was false. ")  # what is before it is C++ code of ONNX Runtime
    return f"ONNX Runtime fails at the node {match[2]!r} ({match[1]}){_origin('of', node)}: {words}"
