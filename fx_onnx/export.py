"""export(): what ``torch.onnx.export(..., dynamo=True)`` takes, and an ONNXProgram back. The stages are in pipeline.py.

The first export imports them: onnx_ir, onnx, onnxscript and sympy take longer than importing all of the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from fx_onnx.core.errors import ArgumentError

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
    """Exports a PyTorch model to ONNX; names, order and meaning are those of ``torch.onnx.export(..., dynamo=True)``.

    Args:
        model: a Module, or a torch.export.ExportedProgram, which is taken as it is.
        args: example positional arguments: a tuple, a tensor, or a tuple that ends in a dict of keyword arguments.
            Tensors become inputs, everything else is baked in.
        f: where to save the model: a path or a binary file. None saves nothing.
        kwargs: example keyword arguments.
        verbose: True prints a line per stage.
        input_names: names of the graph inputs, in order; the rest keep the forward's names.
        output_names: names of the graph outputs, in order.
        opset_version: of the default ONNX domain: 18 to 26 natively, below through onnxscript's version converter.
        dynamo: True; the TorchScript exporter is not part of fx_onnx.
        external_data: for ``f``: True puts the weights into ``<f>.data``; None does so only above 2 GB.
        dynamic_shapes: which dims are dynamic, in every form that torch.export takes; strings name dims, and the keys
            of a dict may be ``input_names``.
        custom_translation_table: FX target → function, see docs/add_an_op.md.
        report: writes a Markdown report into ``artifacts_dir``, on success and on failure.
        optimize: whether the graph is optimized.
        verify: compares the program with the module in ONNX Runtime, and raises if they differ.
        profile: writes what took the time into ``artifacts_dir``.
        dump_exported_program: saves the captured program as ``.pt2`` into ``artifacts_dir``.
        artifacts_dir: the folder for all of these.
        export_params: for ``f``: False leaves the weights out of the file.
        keep_initializers_as_inputs: for ``f``: True makes the weights inputs too, which a runtime may override.
        dynamic_axes: the older form of ``dynamic_shapes``: input or output name → {axis: name} or [axis, ...].
        export_modules_as_functions: the module classes whose calls become calls of local functions, True for all; see
            docs/custom_operators.md. From opset 18 on.

    Returns:
        The program: call it, save it, inspect ``model`` or ``model_proto``.

    Raises:
        ArgumentError: an argument is not what it should be; nothing was written.
        CaptureError: torch.export could not capture the model.
        UnsupportedOperatorError: operators without translation and decomposition, all at once.
        TranslationError: a translation failed.
        VerificationError: the program's results differ from the module's (only with ``verify``).
    """
    _refuse_torchscript(dynamo)
    from fx_onnx import pipeline
    from fx_onnx.capture.request import parse_request
    from fx_onnx.core import opsets
    from fx_onnx.program import artifacts
    from fx_onnx.program.export_log import ExportLog

    opset = opsets.check(opset_version)
    request = parse_request(
        model,
        args,
        dict(kwargs) if kwargs is not None else None,
        input_names=input_names,
        output_names=output_names,
        dynamic_shapes=dynamic_shapes,
        dynamic_axes=dynamic_axes,
    )
    log = ExportLog(verbose=bool(verbose))
    with artifacts.kept(log, artifacts_dir, report=report, profile=profile, exported_program=dump_exported_program):
        options = (custom_translation_table, optimize, verify)
        program = pipeline.run(request, opset, *options, log, export_modules_as_functions)
        if f is not None:
            with log.stage("save"):
                program.save(
                    f,
                    include_initializers=export_params,
                    keep_initializers_as_inputs=keep_initializers_as_inputs,
                    external_data=external_data,
                )
    return program


def _refuse_torchscript(dynamo: bool) -> None:
    if dynamo is not True:
        raise ArgumentError("fx_onnx exports through torch.export only: leave dynamo=True, or use torch.onnx.export.")
