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
from torch._subclasses.fake_tensor import unset_fake_temporarily

import fx_onnx.ops  # noqa: F401  registers the translations
from fx_onnx import autograd, custom, metadata, naming, opsets
from fx_onnx.arguments import Request
from fx_onnx.autocast import switched_off
from fx_onnx.capture import capture
from fx_onnx.complex_pairs import split_complex
from fx_onnx.decompose import decompose
from fx_onnx.errors import ArgumentError
from fx_onnx.flex_attention import write_out_attention
from fx_onnx.fold import fold_constants
from fx_onnx.functionalize import functionalize
from fx_onnx.journal import Journal, count_operators
from fx_onnx.optimize import optimize as optimize_model
from fx_onnx.passes.common_results import ShareResults
from fx_onnx.passes.functions import ModulesToFunctions
from fx_onnx.passes.rewrite import Pass, apply
from fx_onnx.passes.runtime_draws import RuntimeDraws
from fx_onnx.passes.runtime_forms import RuntimeForms
from fx_onnx.passes.runtime_pads import KeepPads
from fx_onnx.passes.runtime_types import RuntimeTypes
from fx_onnx.program import ONNXProgram
from fx_onnx.subclasses import open_subclasses
from fx_onnx.table import table
from fx_onnx.translate import translate
from fx_onnx.verify import check_model
from fx_onnx.verify import verify as verify_program

RUNTIME_PASSES: tuple[Pass, ...] = (RuntimeForms(), RuntimeDraws(), KeepPads(), RuntimeTypes())
"""What ONNX Runtime lacks, made good in models that were not optimized too."""


def run(
    request: Request,
    opset: int,
    custom_table: Mapping[Any, Callable[..., Any]] | None,
    optimize: bool,
    verify: bool,
    journal: Journal,
    modules_as_functions: bool | Collection[type[nn.Module]] = False,
) -> ONNXProgram:
    """The program of a request; what each stage took and decided goes into ``journal``.

    The modules of ``modules_as_functions`` become local functions once all else is done.

    Raises:
        OnnxExporterError: some stage failed; the journal knows which.
    """
    functions, custom_table = _functions(modules_as_functions, opset), custom_table or {}
    translations = table(opsets.native(opset)).extended(custom.translations(custom_table))
    with journal.stage("capture"), autograd.kept_whole(custom.functions(custom_table)):
        captured = journal.captured = capture(request)
    translations = journal.table = translations.extended(
        custom.translations_of_functions(captured.exported_program, translations)
    )
    journal.operators_before = count_operators(captured.exported_program.graph)
    with _real_tensors(), _no_collection():
        with journal.stage("functionalize"):
            functional = write_out_attention(open_subclasses(functionalize(captured.exported_program)))
        with journal.stage("decompose"):
            decomposed = journal.decomposed = decompose(split_complex(fold_constants(functional)), translations)
        if unused := custom.uncalled(custom_table, captured.exported_program, decomposed.graphs):
            journal.notes["decompose"] = f"never called of custom_translation_table: {', '.join(unused)}"
        with journal.stage("translate"):
            model = translate(decomposed, translations, captured.symbol_names)
            naming.name_by_structure(model, captured.exported_program)
            naming.name_inputs_and_outputs(model, request)
        if optimize:
            with journal.stage("optimize"):
                model = optimize_model(model, without=() if functions is None else (ShareResults.name,))
        model = apply(model, RUNTIME_PASSES)
        if functions is not None:
            model = functions(model).model
            model = ShareResults()(model).model if optimize else model  # before it, a module would use another's result
            if functions.left_inline:
                journal.notes["optimize"] = f"modules left inline: {', '.join(functions.left_inline)}"
        model = opsets.convert(model, opset)
    program = journal.program = ONNXProgram(model, captured.exported_program)
    program.timings = dict(journal.seconds)
    if verify:
        with journal.stage("verify"):
            check_model(program)
            args, kwargs = captured.exported_program.example_inputs or ((), {})
            journal.verification = verify_program(program, args, kwargs)
            journal.verification.check()
    return program


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
    with unset_fake_temporarily(), device, switched_off():
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
