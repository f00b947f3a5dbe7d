"""export(), read top to bottom: capture → functionalize → decompose → translate → optimize → ONNXProgram.

The first export imports the stages: onnx_ir, onnx, onnxscript and sympy take longer than all of the rest.
"""

from __future__ import annotations

import cProfile
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from fx_onnx.errors import ArgumentError, OnnxExporterError

if TYPE_CHECKING:
    from fx_onnx.arguments import Request
    from fx_onnx.journal import Journal
    from fx_onnx.program import ONNXProgram


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

    Returns:
        The program: call it, save it, inspect ``model`` or ``model_proto``.

    Raises:
        ArgumentError: an argument is not what it should be; nothing was written.
        CaptureError: torch.export could not capture the model.
        UnsupportedOperatorError: operators without translation and decomposition, all at once.
        TranslationError: a translation failed.
        VerificationError: the program's results differ from the module's (only with ``verify``).
    """
    if dynamo is not True:
        raise ArgumentError(
            "fx_onnx exports through torch.export: leave dynamo=True, or use torch.onnx.export for dynamo=False."
        )
    from fx_onnx import opsets
    from fx_onnx.arguments import parse_request
    from fx_onnx.journal import Journal

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
    journal = Journal(verbose=bool(verbose), profile=cProfile.Profile() if profile else None)
    artifacts = Artifacts(Path(artifacts_dir), report, dump_exported_program)
    try:
        if journal.profile is not None:
            journal.profile.enable()
        program = _line(request, opset, custom_translation_table or {}, optimize, verify, journal)
        if f is not None:
            with journal.stage("save"):
                program.save(
                    f,
                    include_initializers=export_params,
                    keep_initializers_as_inputs=keep_initializers_as_inputs,
                    external_data=external_data,
                )
    except OnnxExporterError as error:
        artifacts.write(journal, error)
        raise
    artifacts.write(journal, None)
    return program


def _line(
    request: Request,
    opset: int,
    custom_table: Mapping[Any, Callable[..., Any]],
    optimize: bool,
    verify: bool,
    journal: Journal,
) -> ONNXProgram:
    """The stages one after the other; each is the public function of the file of its name."""
    import fx_onnx.ops  # noqa: F401  registers the translations
    from fx_onnx import custom, naming, opsets
    from fx_onnx.capture import capture
    from fx_onnx.complex_pairs import split_complex
    from fx_onnx.decompose import decompose
    from fx_onnx.fold import fold_constants
    from fx_onnx.functionalize import functionalize
    from fx_onnx.journal import count_operators
    from fx_onnx.optimize import optimize as optimize_model
    from fx_onnx.program import ONNXProgram
    from fx_onnx.table import table
    from fx_onnx.translate import translate
    from fx_onnx.verify import verify as verify_program

    translations = journal.table = table(opsets.native(opset)).extended(custom.translations(custom_table))
    with journal.stage("capture"):
        captured = journal.captured = capture(request)
    journal.operators_before = count_operators(captured.exported_program.graph)
    with _real_tensors():
        with journal.stage("functionalize"):
            functional = functionalize(captured.exported_program)
        with journal.stage("decompose"):
            decomposed = journal.decomposed = decompose(split_complex(fold_constants(functional)), translations)
        with journal.stage("translate"):
            model = translate(decomposed, translations, captured.symbol_names)
            naming.name_inputs_and_outputs(model, request)
        if optimize:
            with journal.stage("optimize"):
                model = optimize_model(model)
        model = opsets.convert(model, opset)
    program = journal.program = ONNXProgram(model, captured.exported_program)
    program.timings = dict(journal.seconds)
    if verify:
        with journal.stage("verify"):
            args, kwargs = captured.exported_program.example_inputs or ((), {})
            journal.verification = verify_program(program, args, kwargs)
            journal.verification.check()
    return program


@contextmanager
def _real_tensors() -> Iterator[None]:
    """What is computed here has values, whatever the caller has switched on: a FakeTensorMode, a default device."""
    device = torch.device("cpu") if torch.get_default_device().type != "cpu" else nullcontext()
    with unset_fake_temporarily(), device:
        yield


class Artifacts:
    """The files beside the model that an export was asked for."""

    def __init__(self, folder: Path, report: bool, exported_program: bool) -> None:
        self.folder, self.report, self.exported_program = folder, report, exported_program

    def write(self, journal: Journal, error: OnnxExporterError | None) -> None:
        """Writes them, after an export that ended well or with ``error``."""
        if journal.profile is not None:
            journal.profile.disable()
            self._path("profile.txt").write_text(journal.profile_text() or "", encoding="utf-8")
        if self.exported_program and journal.captured is not None:
            torch.export.save(journal.captured.exported_program, self._path("program.pt2"))
        if self.report:
            journal.write(self.folder, error)

    def _path(self, name: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"onnx_export_{datetime.now():%Y-%m-%d_%H-%M-%S-%f}_{name}"
