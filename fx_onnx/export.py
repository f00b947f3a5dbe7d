"""The public function ``export()``: it takes the arguments of ``torch.onnx.export``, of today and of earlier versions.

The stages are in pipeline.py. The first call imports them, because onnx_ir, onnx, onnxscript and sympy take longer to
import than the rest of the package.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, Never, Unpack

import torch

from fx_onnx.extension_points.interrupts import interrupts_after_imports
from fx_onnx.extension_points.rooms import find
from fx_onnx.messages.arguments import check_flag, check_mapping, check_path, shown
from fx_onnx.messages.error_display import for_users
from fx_onnx.messages.errors import ArgumentError, MissingPackageError, OnnxExporterError, no_effect
from fx_onnx.messages.findings import collect_findings, warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import opsets
from fx_onnx.program.export_call import call_text, given_arguments, with_own_examples
from fx_onnx.requests.export_modes import OperatorExportTypes, TrainingMode, check_mode
from fx_onnx.torch_internals.garbage import no_collection
from fx_onnx.torch_internals.version import check_torch

if TYPE_CHECKING:
    from fx_onnx.compat.removed_keywords import RemovedKeywords
    from fx_onnx.passes.rules import Rule
    from fx_onnx.program.export_options import ExportOptions
    from fx_onnx.program.onnx_program import ONNXProgram
    from fx_onnx.requests.request import Request
    from fx_onnx.targets.target import Target


def export(
    model: torch.nn.Module | torch.export.ExportedProgram | torch.jit.ScriptFunction[Any, Any] | str | os.PathLike[str],
    args: tuple[Any, ...] | list[Any] | torch.Tensor | Mapping[str, Any] = (),
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *positional: Never,
    kwargs: Mapping[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool | None = None,
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None,
    custom_translation_table: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
    report: bool = False,
    optimize: bool | Collection[str] = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool | None = False,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    training: TrainingMode | torch.onnx.TrainingMode | None = None,
    operator_export_type: OperatorExportTypes | torch.onnx.OperatorExportTypes | None = OperatorExportTypes.ONNX,
    do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type[torch.nn.Module]] = False,
    autograd_inlining: bool = True,
    target: str | Target | None = None,
    metadata: str = "full",
    progress: bool | None = None,
    rules: Sequence[Rule | str] = (),
    max_data_paths: int = 16,
    **removed: Unpack[RemovedKeywords],
) -> ONNXProgram:
    """Exports a PyTorch model to ONNX.

    The parameters have the names, the order, the defaults and the meaning of those of ``torch.onnx.export``.
    docs/migrate.md compares each of them.

    Args:
        model: a Module, a TorchScript module or function (see docs/torchscript.md), or a torch.export.ExportedProgram,
            which is not captured again, or the path of a file that torch.export.save or torch.jit.save wrote, also in
            an older torch (see docs/older_torch.md). An ``ExportableModule`` gives its own arguments, dynamic shapes
            and names if the call gives no arguments.
        args: the example positional arguments: a tuple, a single tensor, a tuple whose last entry is a dict of keyword
            arguments, or this dict alone. A list is one argument; if ``forward`` takes no list, it is read as a tuple.
            Tensors become inputs of the model. All other values become constants.
        f: where to save the model: a path or a binary file. None saves nothing.
        positional: empty. All further arguments are given by keyword.
        kwargs: the example keyword arguments.
        verbose: True prints one line for each stage, and the graph as text. Each node gets its source line as
            doc_string.
        input_names: names of the first graph inputs. The others keep the names of the parameters of ``forward``. Names
            after those of the inputs are for the weights, in the order of the state_dict.
        output_names: names of the first graph outputs.
        opset_version: the version of the default ONNX domain. Versions 18 to 28 are native. For an
            older version, down to 7, the finished model of opset 18 is rewritten.
        dynamo: False warns, because there is no TorchScript exporter, and makes ``TrainingMode.EVAL`` the default of
            ``training``, as for callers of that exporter.
        external_data: True saves the weights to ``<f>.data``, or ``<f>.1.data`` if the model that is
            replaced reads ``<f>.data``. None does so only above 2 GB.
        dynamic_shapes: the dynamic dims, in any form that torch.export takes. A string names a dim. The keys of a dict
            may be ``input_names``. ``Dim.DYNAMIC`` for an int or a float makes it a 0-d input of int64 or float64.
        custom_translation_table: operator → translation function; see docs/custom_operators.md. It has precedence over
            functions that ``register_custom_op_symbolic`` registered.
        report: writes a report to ``artifacts_dir``, as an HTML page with the graph and as Markdown, whether the export
            succeeds or fails. If it cannot be written, the export warns.
        optimize: runs the optimizer; a set of names runs it without the passes of these names, such as
            ``{"fuse_gelu"}``. docs/passes.md lists them.
        verify: checks the model, runs it in ONNX Runtime on the example arguments, and compares it with the module.
        profile: writes a profile of the export to ``artifacts_dir``.
        dump_exported_program: saves the captured program to ``artifacts_dir`` as a ``.pt2`` file.
        artifacts_dir: the folder of the report, the profile and the captured program.
        export_params: False saves the model to ``f`` without the weights. They become graph inputs after the others,
            in the order of the state_dict.
        keep_initializers_as_inputs: True makes the weights in ``f`` graph inputs too, so that a runtime may override
            them. None means False, or True if ``operator_export_type`` is not ONNX.
        dynamic_axes: the older form of ``dynamic_shapes``: input or output name → {axis: name} or [axis, ...].
        training: the mode in which the module is captured; its mode is restored afterwards. None captures it in
            its own mode, and warns if that is training mode. TRAINING keeps BatchNormalization and Dropout in their
            training forms. The members of ``torch.onnx.TrainingMode`` are accepted too.
        operator_export_type: how a call without translation and decomposition is exported. The members of
            ``torch.onnx.OperatorExportTypes`` are accepted too.
        do_constant_folding: False keeps the nodes that compute a constant or a weight from other ones.
        custom_opsets: domain → version, for the domains of custom operators. The version of the others is 1.
        export_modules_as_functions: the module classes whose calls become calls of local functions; True means all
            classes. It needs opset 15 or above. See docs/custom_operators.md.
        autograd_inlining: False keeps each torch.autograd.Function as one operator, which needs a translation.
        target: the runtime that will run the model, by name (docs/targets.md lists them) or as a record of
            ``fx_onnx.Target``. It decides the default of ``opset_version`` and what is replaced for the
            runtime. None means ONNX Runtime's CPU provider.
        metadata: what the file ``f`` tells about the code of the model: ``full``, ``names`` or ``none``, as for
            ``ONNXProgram.save``.
        progress: whether to show a progress bar on standard error, which appears after 2 seconds. None shows it on a
            terminal and in a notebook, but not with ``verbose=True``, which prints a line for each stage.
        rules: rewrites of your own, or names of those of plug-ins, which run after the optimizer; see docs/rules.md.
        max_data_paths: the largest number of paths through a ``forward`` that branches on data, each of which is
            captured; see docs/branches_on_data.md.
        removed: keywords that torch removed from its export, with their old meaning. Each causes a FutureWarning.

    Returns:
        The program. It can be called and saved, and it holds the model as ``model`` and ``model_proto``. Its weights
        are those of the module, not copies: a later change in place, such as a step of training, changes them too.

    Raises:
        ArgumentError: an argument is not valid. No model is written.
        CaptureError: torch.export could not capture the model.
        MutationError: the model writes in place to a view that has no functional form.
        UnsupportedOperatorError: operators have neither a translation nor a decomposition. The message lists them all.
        TranslationError: a translation or a decomposition failed.
        CheckerError: the model is not valid ONNX (only with ``verify``).
        VerificationError: the results of the program and of the module differ (only with ``verify``).
    """
    arguments = dict(locals())
    try:
        with interrupts_after_imports():
            return _export(arguments)
    except OnnxExporterError as error:
        raise error if verbose is True else for_users(error)  # noqa: B904  its cause says from what


_PARAMETERS = {
    name: parameter
    for name, parameter in inspect.signature(export).parameters.items()
    if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
}
_DEFAULTS = {name: parameter.default for name, parameter in _PARAMETERS.items()}
_OF_REMOVED_KEYWORDS = {"check": False, "doc_strings": None}
"""What a removed keyword sets and no parameter of today does: whether the model is checked, also without ``verify``,
and whether each node gets its source lines as doc_string; None follows ``verbose``."""


def _export(arguments: dict[str, Any]) -> ONNXProgram:
    """Exports with the arguments of ``export``, by name."""
    with collect_findings() as findings:
        check_torch()
        positional, removed = arguments.pop("positional"), arguments.pop("removed")
        arguments |= _OF_REMOVED_KEYWORDS
        if positional:
            find("arguments", "positional arguments")(positional)
        if isinstance(arguments["model"], (str, os.PathLike)):
            arguments["model"] = find("models", "file")(arguments["model"])
        if removed:
            arguments |= find("arguments", "removed keywords")(
                removed, arguments, {**_DEFAULTS, **_OF_REMOVED_KEYWORDS}
            )
        _check(arguments)
        try:
            with no_collection():  # a collection while they are imported would visit all of torch
                from fx_onnx import pipeline
                from fx_onnx.program.export_log import record
        except ModuleNotFoundError as error:
            raise MissingPackageError(
                f"fx_onnx needs the package {error.name}, which is not installed; install it, for example with "
                f"`pip install {str(error.name).replace('_', '-')}`."
            ) from error
        request, options = _request(with_own_examples(arguments)), _options(arguments)
        with record(
            arguments["artifacts_dir"],
            report=arguments["report"],
            profile=arguments["profile"],
            program=arguments["dump_exported_program"],
            verbose=arguments["verbose"],
        ) as log:
            log.progress = False if arguments["progress"] is None and log.verbose else arguments["progress"]
            log.call, log.model_name = call_text(arguments, _DEFAULTS), type(arguments["model"]).__name__
            program = pipeline.run(request, options, log)
    program.findings = findings
    return program


# ---------------------------------------------------------------- from the arguments to the request and the options


def _request(given: Mapping[str, Any]) -> Request:
    """Returns what to export."""
    from fx_onnx.requests.request import parse_request

    request = parse_request(
        given["model"],
        given["args"],
        given["kwargs"],
        input_names=given["input_names"],
        output_names=given["output_names"],
        dynamic_shapes=given["dynamic_shapes"],
        dynamic_axes=given["dynamic_axes"],
        training=_training_mode(given),
        in_signature_order=given["dynamo"] is False,
    )
    return replace(request, max_data_paths=given["max_data_paths"])


def _options(given: Mapping[str, Any]) -> ExportOptions:
    """Returns how to export, and where to save the model."""
    from fx_onnx.extension_points.translation_table import PLUGINS
    from fx_onnx.passes.rules import with_named
    from fx_onnx.program.export_options import ExportOptions
    from fx_onnx.targets.known_targets import find_target
    from fx_onnx.translation.symbolic_registry import registered

    target = None if given["target"] is None else find_target(given["target"])
    version = given["opset_version"]
    opset = opsets.check(target.opset if version is None and target is not None else version)
    without, doc_strings = _passes_to_leave_out(given["optimize"]), given["doc_strings"]
    mode = check_mode("operator_export_type", given["operator_export_type"], OperatorExportTypes)
    as_inputs = given["keep_initializers_as_inputs"]
    return ExportOptions(
        opset=opset,
        target=target,
        rules=with_named(given["rules"]),
        optimize=bool(given["optimize"]) if without is None else True,
        without=without or (),
        fold_constants=given["do_constant_folding"],
        verify=given["verify"],
        check=given["check"],
        doc_strings=bool(given["verbose"]) if doc_strings is None else doc_strings,
        operator_export_type=mode or OperatorExportTypes.ONNX,  # None means ONNX, as in torch 1
        autograd_inlining=given["autograd_inlining"],
        custom_translation_table=given["custom_translation_table"] or {},
        registered_symbolics=registered(opset),
        plugin_translations=find("translations", "plug-ins")(opsets.native(opset)) if PLUGINS.names() else (),
        custom_opsets=given["custom_opsets"] or {},
        modules_as_functions=given["export_modules_as_functions"],
        destination=given["f"],
        include_initializers=given["export_params"],
        keep_initializers_as_inputs=mode not in (None, OperatorExportTypes.ONNX) if as_inputs is None else as_inputs,
        external_data=given["external_data"],
        metadata=given["metadata"],
        bare_declarations=given["dynamo"] is False,
    )


def _passes_to_leave_out(optimize: Any) -> Collection[str] | None:
    """Returns the names of passes in ``optimize``, which ExportOptions checks; None if it is a flag."""
    if isinstance(optimize, str):
        return {optimize}
    return optimize if isinstance(optimize, (set, frozenset, list, tuple)) else None


_OF_THE_FILE = ("external_data", "metadata")


def _check(given: Mapping[str, Any]) -> None:
    """Checks the arguments that need no stage: the flags, the folder, and whether a table is a dict."""
    for name, parameter in _PARAMETERS.items():
        if parameter.annotation in ("bool", "bool | None"):
            check_flag(name, given[name], optional=parameter.annotation != "bool")
    if _passes_to_leave_out(given["optimize"]) is None:
        check_flag("optimize", given["optimize"], other="a set of the names of passes to leave out")
    check_mapping("custom_translation_table", given["custom_translation_table"], "operators and functions")
    check_mapping("custom_opsets", given["custom_opsets"], "domains and versions")
    check_path("artifacts_dir", given["artifacts_dir"])
    most = given["max_data_paths"]
    if type(most) is not int or most < 1:
        raise ArgumentError(f"max_data_paths must be an integer above 0, not {shown(most)}.")
    if not given["autograd_inlining"] and isinstance(given["model"], torch.export.ExportedProgram):
        no_effect("autograd_inlining=False", "the model is captured already")
    for name, value in given_arguments(given, _DEFAULTS).items() if given["f"] is None else ():
        if name in _OF_THE_FILE and value is not None:
            no_effect(f"{name}={value}", "it concerns the file, and f is None")


def _training_mode(given: Mapping[str, Any]) -> TrainingMode | None:
    """Returns the mode in which to capture the module; None for its own. Warns about ``dynamo=False``."""
    mode = check_mode("training", given["training"], TrainingMode)
    if given["dynamo"]:
        return mode
    warn(
        "There is no TorchScript exporter; with dynamo=False the model is exported through torch.export all the same.",
        MessageId.NO_TORCHSCRIPT_EXPORTER,
    )
    is_program = isinstance(given["model"], torch.export.ExportedProgram)
    return TrainingMode.EVAL if mode is None and not is_program else mode
