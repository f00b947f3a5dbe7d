"""``torch.onnx.utils``: the functions of the older interface around ``export``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.fx
import torch.onnx.utils

from fx_onnx import pipeline
from fx_onnx.capture.eager_model import in_mode
from fx_onnx.capture.export_flag import is_in_onnx_export
from fx_onnx.compat import log as exporter_log
from fx_onnx.export import export
from fx_onnx.files.serialization import graph_text
from fx_onnx.messages.errors import ArgumentError, UnsupportedOperatorError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import opsets
from fx_onnx.program.export_log import ExportLog
from fx_onnx.program.export_options import ExportOptions
from fx_onnx.requests.export_modes import TrainingMode, check_mode
from fx_onnx.requests.request import parse_request
from fx_onnx.translation import symbolic_registry

__all__ = [
    "disable_apex_o2_state_dict_hook",
    "export",
    "export_to_pretty_string",
    "exporter_context",
    "is_in_onnx_export",
    "model_signature",
    "register_custom_op_symbolic",
    "select_model_mode_for_export",
    "setup_onnx_logging",
    "unconvertible_ops",
    "unpack_quantized_tensor",
    "unregister_custom_op_symbolic",
    "warn_on_static_input_change",
]

# These read their arguments alone, so torch's functions are right for fx_onnx too.
_of_torch: Any = torch.onnx.utils
disable_apex_o2_state_dict_hook: Callable[..., Any] = _of_torch.disable_apex_o2_state_dict_hook
model_signature: Callable[..., Any] = _of_torch.model_signature
unpack_quantized_tensor: Callable[..., Any] = _of_torch.unpack_quantized_tensor
warn_on_static_input_change: Callable[..., Any] = _of_torch.warn_on_static_input_change


# ---------------------------------------------------------------- registrations


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Registers a symbolic function for an operator, in this process.

    An export copies the registrations once, when it is called. An entry of its ``custom_translation_table`` for the
    operator has precedence. If the function returns None for a call, the translation of fx_onnx is used.

    Args:
        symbolic_name: ``domain::name`` of an operator of torch, without an overload: the function is for all overloads.
            ``::name`` means ``aten::name``. ``prim::PythonOp`` means the calls of every autograd.Function that has no
            ``symbolic`` method.
        symbolic_fn: takes the graph ``g``, then all arguments of the operator; returns the results.
        opset_version: the function is used for exports to this opset and above. If several are registered, the one with
            the highest opset that the export reaches is called.

    Raises:
        ArgumentError: an argument is not valid, or a program of torch.export never calls an operator of this name.
    """
    symbolic_registry.register(symbolic_name, symbolic_fn, opset_version)


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Removes the symbolic function of this name and opset; does nothing if there is none.

    Raises:
        ArgumentError: an argument is not valid.
    """
    symbolic_registry.unregister(symbolic_name, opset_version)


# ---------------------------------------------------------------- around an export


@contextmanager
def select_model_mode_for_export(
    model: torch.nn.Module, mode: TrainingMode | torch.onnx.TrainingMode
) -> Iterator[None]:
    """Sets a module to a mode until the context ends, and then restores the mode of each submodule.

    Args:
        model: the module; anything else, such as an ExportedProgram, has no mode and is left as it is.
        mode: EVAL, TRAINING, or PRESERVE, which changes nothing.

    Raises:
        ArgumentError: ``mode`` is not a TrainingMode.
    """
    chosen = check_mode("mode", mode, TrainingMode)
    if chosen is None:
        raise ArgumentError("mode must be a TrainingMode, not None.")
    with in_mode(model if isinstance(model, torch.nn.Module) else torch.nn.Identity(), chosen):
        yield


@contextmanager
def setup_onnx_logging(verbose: bool) -> Iterator[None]:
    """Prints the log of the exporter until the context ends, if ``verbose`` is true."""
    if not verbose or exporter_log.is_onnx_log_enabled():
        yield
        return
    exporter_log.enable_log()
    try:
        yield
    finally:
        exporter_log.disable_log()


@contextmanager
def exporter_context(
    model: torch.nn.Module, mode: TrainingMode | torch.onnx.TrainingMode, verbose: bool
) -> Iterator[tuple[Any, ...]]:
    """Sets the mode of a module, leaves out Apex' hook of its state_dict, and may print the log, until it ends.

    Args:
        model: the module.
        mode: as for ``select_model_mode_for_export``.
        verbose: as for ``setup_onnx_logging``.

    Yields:
        what the three contexts yield.

    Raises:
        ArgumentError: ``mode`` is not a TrainingMode.
    """
    with ExitStack() as stack:
        parts = (
            select_model_mode_for_export(model, mode),
            disable_apex_o2_state_dict_hook(model),
            setup_onnx_logging(verbose),
        )
        yield tuple(stack.enter_context(part) for part in parts)


def export_to_pretty_string(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...] | torch.Tensor,
    export_params: bool = True,
    verbose: bool = False,
    training: TrainingMode | torch.onnx.TrainingMode = TrainingMode.EVAL,
    input_names: Any = None,
    output_names: Any = None,
    operator_export_type: Any = None,
    export_type: Any = None,
    google_printer: bool = False,
    opset_version: int | None = None,
    keep_initializers_as_inputs: bool | None = None,
    custom_opsets: Any = None,
    add_node_names: bool = True,
    do_constant_folding: bool = True,
    dynamic_axes: Any = None,
) -> str:
    """Exports a model and returns it as text in ONNX's textual syntax (Source: ONNX's Syntax document).

    The values of larger weights are not shown. The parameters are those of ``export``, in the order of torch.onnx,
    except for the following ones.

    Args:
        model: the model.
        args: the example arguments.
        export_params: has no effect on the text, which declares each weight with its dtype and shape.
        verbose: as for ``export``.
        training: as for ``export``.
        input_names: as for ``export``.
        output_names: as for ``export``.
        operator_export_type: as for ``export``.
        export_type: must be None, because nothing is written.
        google_printer: returns the text of the protobuf message instead.
        opset_version: as for ``export``.
        keep_initializers_as_inputs: must be None or False, because nothing is written.
        custom_opsets: as for ``export``.
        add_node_names: False leaves out the names of nodes.
        do_constant_folding: as for ``export``.
        dynamic_axes: as for ``export``.

    Raises:
        ArgumentError: an argument is not valid.
    """
    if export_type is not None or keep_initializers_as_inputs:
        raise ArgumentError(
            "export_type and keep_initializers_as_inputs must be left out, because no file is written.",
            id=MessageId.CONFLICTING_ARGUMENTS,
        )
    given = {"operator_export_type": operator_export_type, "custom_opsets": custom_opsets}
    program = export(
        model, args, verbose=verbose, training=None if isinstance(model, torch.export.ExportedProgram) else training,
        input_names=input_names, output_names=output_names, opset_version=opset_version, dynamic_axes=dynamic_axes,
        do_constant_folding=do_constant_folding, **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    if not add_node_names:
        for node in program.model.graph.all_nodes():
            node.name = None
    return str(program.model_proto) if google_printer else graph_text(program.model)


def unconvertible_ops(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...] | torch.Tensor,
    training: TrainingMode | torch.onnx.TrainingMode = TrainingMode.EVAL,
    opset_version: int | None = None,
) -> tuple[torch.fx.Graph, list[str]]:
    """Returns the captured graph and the operators that have neither a translation nor a decomposition.

    Args:
        model: as for ``export``.
        args: as for ``export``.
        training: as for ``export``.
        opset_version: as for ``export``.

    Returns:
        the FX graph of the captured program, and the operators as ``domain::name``, sorted. The list is exact for the
        example arguments.

    Raises:
        CaptureError: torch.export could not capture the model.
        TranslationError: a decomposition fails.
    """
    opset = opsets.check(opset_version)
    mode = None if isinstance(model, torch.export.ExportedProgram) else check_mode("training", training, TrainingMode)
    request = parse_request(model, args, training=mode)
    options = ExportOptions(opset=opset, registered_symbolics=symbolic_registry.registered(opset))
    log = ExportLog()
    names: set[str] = set()
    try:
        pipeline.run_until("decompose", request, options, log)
    except UnsupportedOperatorError as error:
        names = {"::".join(operator.split(".")[:2]) for operator in error.operators}
    if log.captured is None:
        raise ArgumentError("The model was not captured.")
    return log.captured.exported_program.graph, sorted(names)
