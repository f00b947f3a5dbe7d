"""The line, read top to bottom.

capture → functionalize → decompose → translate → optimize → runtime types → ONNXProgram

Each stage is the public function of the file of its name; it takes what the stage before it gave.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

import fx_onnx.ops  # noqa: F401  registers the translations
from fx_onnx.aten.complex_to_real import lower_complex
from fx_onnx.aten.constant_folding import fold_constants
from fx_onnx.aten.decompose import decompose
from fx_onnx.aten.flex_attention import lower_flex_attention
from fx_onnx.aten.functionalize import functionalize
from fx_onnx.aten.tensor_subclasses import unwrap_tensor_subclasses
from fx_onnx.capture import autograd_functions
from fx_onnx.capture.capture import capture
from fx_onnx.capture.request import Request
from fx_onnx.core import metadata, opsets
from fx_onnx.core.autocast_off import autocast_disabled
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.torch_private import unset_fake_temporarily
from fx_onnx.core.translation_table import table
from fx_onnx.passes.cleanup.common_subexpressions import EliminateCommonSubexpressions
from fx_onnx.passes.legalization.legalize import legalize
from fx_onnx.passes.legalization.opset_conversion import convert_opset
from fx_onnx.passes.module_functions import ModulesToFunctions
from fx_onnx.passes.optimize import optimize as optimize_model
from fx_onnx.program.export_log import ExportLog, count_operators
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.verify import check_model
from fx_onnx.program.verify import verify as verify_program
from fx_onnx.translation import io_names, user_translations
from fx_onnx.translation.translate import translate


def run(
    request: Request,
    opset: int,
    custom_table: Mapping[Any, Callable[..., Any]] | None,
    optimize: bool,
    verify: bool,
    log: ExportLog,
    modules_as_functions: bool | Collection[type[nn.Module]] = False,
) -> ONNXProgram:
    """The program of a request; what each stage took and decided goes into ``log``.

    The modules of ``modules_as_functions`` become local functions once all else is done.

    Raises:
        OnnxExporterError: some stage failed; the log knows which.
    """
    functions, custom_table = _functions(modules_as_functions, opset), custom_table or {}
    translations = table(opsets.native(opset)).extended(user_translations.translations(custom_table))
    with log.stage("capture"), autograd_functions.kept_whole(user_translations.functions(custom_table)):
        captured = log.captured = capture(request)
    translations = log.table = translations.extended(
        user_translations.translations_of_functions(captured.exported_program, translations)
    )
    log.operators_before = count_operators(captured.exported_program.graph)
    with _real_tensors(), _no_collection():
        with log.stage("functionalize"):
            functional = lower_flex_attention(unwrap_tensor_subclasses(functionalize(captured.exported_program)))
        with log.stage("decompose"):
            decomposed = log.decomposed = decompose(lower_complex(fold_constants(functional)), translations)
        if unused := user_translations.uncalled(custom_table, captured.exported_program, decomposed.graphs):
            log.notes["decompose"] = f"never called of custom_translation_table: {', '.join(unused)}"
        with log.stage("translate"):
            model = translate(decomposed, translations, captured.symbol_names)
            io_names.name_by_structure(model, captured.exported_program)
            io_names.name_inputs_and_outputs(model, request)
        if optimize:
            with log.stage("optimize"):
                model = optimize_model(
                    model, without=() if functions is None else (EliminateCommonSubexpressions.name,)
                )
        model = legalize(model)
        if functions is not None:
            model = functions(model).model
            model = (
                EliminateCommonSubexpressions()(model).model if optimize else model
            )  # before it, a module would use another's result
            if functions.left_inline:
                log.notes["optimize"] = f"modules left inline: {', '.join(functions.left_inline)}"
        model = convert_opset(model, opset)
    program = log.program = ONNXProgram(model, captured.exported_program)
    program.timings = dict(log.seconds)
    if verify:
        with log.stage("verify"):
            _verify(program, captured.exported_program.example_inputs, log)
    return program


def _verify(program: ONNXProgram, example: tuple[Any, Any] | None, log: ExportLog) -> None:
    check_model(program)
    args, kwargs = example or ((), {})
    log.verification = verify_program(program, args, kwargs)
    log.verification.check()


def _functions(wanted: bool | Collection[type[nn.Module]], opset: int) -> ModulesToFunctions | None:
    """The pass that makes functions of modules: of all, or of those of some classes; None where none are wanted.

    Raises:
        ArgumentError: it is neither a bool nor a set of module classes, or the opset is one that is converted to.
    """
    if wanted is False:
        return None
    classes = list(wanted) if isinstance(wanted, Collection) else []
    if wanted is not True and not (classes and all(isinstance(c, type) and issubclass(c, nn.Module) for c in classes)):
        raise ArgumentError(f"export_modules_as_functions must be a bool or a set of module classes, not {wanted!r}.")
    if opsets.native(opset) != opset:
        raise ArgumentError(
            f"export_modules_as_functions needs an opset that is not converted to: {opsets.native(opset)} or above."
        )
    return ModulesToFunctions(None if wanted is True else {metadata.qualified_name(cls) for cls in classes})


@contextmanager
def _real_tensors() -> Iterator[None]:
    """What is computed here has values, whatever the caller has on: a FakeTensorMode, a default device, autocast."""
    device = torch.device("cpu") if torch.get_default_device().type != "cpu" else nullcontext()
    with unset_fake_temporarily(), device, autocast_disabled():
        yield


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: it takes as long as the stages, walking through the captured program time and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
