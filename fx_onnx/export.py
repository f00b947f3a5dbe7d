"""The public function ``export()``: it takes the arguments of ``torch.onnx.export(..., dynamo=True)``.

The stages are in pipeline.py. The first call imports them, because onnx_ir, onnx, onnxscript and sympy take longer to
import than the rest of the package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from fx_onnx.core import opsets
from fx_onnx.core.arguments import check_flag, check_mapping, check_path
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.version import check_torch

if TYPE_CHECKING:
    from fx_onnx.program.onnx_program import ONNXProgram


def export(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...] | torch.Tensor = (),
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
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
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    export_modules_as_functions: bool | Collection[type[torch.nn.Module]] = False,
) -> ONNXProgram:
    """Exports a PyTorch model to ONNX.

    The parameters have the names, the order and the meaning of those of ``torch.onnx.export(..., dynamo=True)``.

    Args:
        model: a Module, or a torch.export.ExportedProgram, which is not captured again.
        args: the example positional arguments: a tuple, a single tensor, or a tuple whose last entry is a dict of
            keyword arguments. Tensors become inputs of the model. All other values become constants.
        f: where to save the model: a path or a binary file. None saves nothing.
        kwargs: the example keyword arguments.
        verbose: True prints one line for each stage.
        input_names: names of the first graph inputs. The others keep the names of the parameters of ``forward``.
        output_names: names of the first graph outputs.
        opset_version: the version of the default ONNX domain. Versions 18 to 26 are native. For an
            older version, down to 11, the finished model of opset 18 is rewritten.
        dynamo: must be True, because fx_onnx has no TorchScript exporter.
        external_data: True saves the weights to ``<f>.data``, or ``<f>.1.data`` if the model that is
            replaced reads ``<f>.data``. None does so only above 2 GB.
        dynamic_shapes: the dynamic dims, in any form that torch.export takes. A string names a dim. The keys of a dict
            may be ``input_names``. ``Dim.DYNAMIC`` for an int or a float makes it a 0-d input of int64 or float64.
        custom_translation_table: operator → translation function; see docs/custom_operators.md.
        report: writes a Markdown report to ``artifacts_dir``, whether the export succeeds or fails. If it cannot be
            written, the export warns.
        optimize: runs the optimizer.
        verify: checks the model, runs it in ONNX Runtime on the example arguments, and compares it with the module.
        profile: writes a profile of the export to ``artifacts_dir``.
        dump_exported_program: saves the captured program to ``artifacts_dir`` as a ``.pt2`` file.
        artifacts_dir: the folder of the report, the profile and the captured program.
        export_params: False saves the model to ``f`` without the weights.
        keep_initializers_as_inputs: True makes the weights in ``f`` graph inputs too, so that a runtime may override
            them.
        dynamic_axes: the older form of ``dynamic_shapes``: input or output name → {axis: name} or [axis, ...].
        export_modules_as_functions: the module classes whose calls become calls of local functions; True means all
            classes. It needs opset 15 or above. See docs/custom_operators.md.

    Returns:
        The program. It can be called and saved, and it holds the model as ``model`` and ``model_proto``.

    Raises:
        ArgumentError: an argument is not valid. No model is written.
        CaptureError: torch.export could not capture the model.
        MutationError: the model writes in place to a view that has no functional form.
        UnsupportedOperatorError: operators have neither a translation nor a decomposition. The message lists them all.
        TranslationError: a translation or a decomposition failed.
        CheckerError: the model is not valid ONNX (only with ``verify``).
        VerificationError: the results of the program and of the module differ (only with ``verify``).
    """
    check_torch()
    _check_options(locals())  # the parameters by name
    opset = opsets.check(opset_version)
    from fx_onnx import pipeline
    from fx_onnx.capture.request import parse_request
    from fx_onnx.program.artifacts import record

    request = parse_request(
        model,
        args,
        kwargs,
        input_names=input_names,
        output_names=output_names,
        dynamic_shapes=dynamic_shapes,
        dynamic_axes=dynamic_axes,
    )
    options = pipeline.ExportOptions(
        opset=opset,
        optimize=optimize,
        verify=verify,
        custom_translation_table=custom_translation_table or {},
        modules_as_functions=export_modules_as_functions,
        save=pipeline.SaveOptions(f, export_params, keep_initializers_as_inputs, external_data),
    )
    with record(artifacts_dir, verbose=verbose, report=report, profile=profile, program=dump_exported_program) as log:
        return pipeline.run(request, options, log)


def _check_options(options: Mapping[str, Any]) -> None:
    """Checks the arguments that need no stage: the flags, the folder, and whether a table is a dict."""
    if options["dynamo"] is not True:
        raise ArgumentError(
            "fx_onnx exports through torch.export only; leave dynamo=True, or use torch.onnx.export for TorchScript."
        )
    for name in ("report", "optimize", "verify", "profile", "dump_exported_program", "export_params"):
        check_flag(name, options[name])
    for name in ("verbose", "external_data", "keep_initializers_as_inputs"):
        check_flag(name, options[name], optional=True)
    check_mapping("custom_translation_table", options["custom_translation_table"], "operators and functions")
    check_path("artifacts_dir", options["artifacts_dir"])
