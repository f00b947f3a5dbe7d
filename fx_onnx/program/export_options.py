"""The options of an export: how to export a model, and where to save it. ``capture/request.py`` says what to export."""

from __future__ import annotations

import enum
import os
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, BinaryIO

import torch
from torch import nn

from fx_onnx.core import metadata, opsets
from fx_onnx.core.arguments import check_name, shown
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.export_modes import OperatorExportTypes, TrainingMode
from fx_onnx.core.messages import MessageId
from fx_onnx.core.translation_table import Translation
from fx_onnx.passes.optimize import passes_without
from fx_onnx.passes.rules import Rule, check_rules
from fx_onnx.program.destination import check_destination
from fx_onnx.program.metadata_levels import check_level
from fx_onnx.program.save import Destination
from fx_onnx.targets.target import Target

__all__ = ["ExportArguments", "ExportOptions", "SaveOptions"]


@dataclass(frozen=True)
class SaveOptions:
    """Where and how the ``save`` stage writes the model. The fields have the meaning of ``ONNXProgram.save``.

    Attributes:
        destination: a path or a binary file; None saves nothing.
        include_initializers: whether the weights are written.
        keep_initializers_as_inputs: whether the weights are graph inputs too.
        external_data: True writes the weights to a file beside the model; None does so above 2 GB only.
        metadata: what the file tells about the model's code; one of ``metadata_levels.LEVELS``.
        bare_declarations: whether files declare the user's inputs and outputs without metadata.

    Raises:
        ArgumentError: the model cannot be saved there, or there is no such level.
    """

    destination: Destination | None = None
    include_initializers: bool = True
    keep_initializers_as_inputs: bool = False
    external_data: bool | None = None
    metadata: str = "full"
    bare_declarations: bool = False

    @property
    def has_weights_as_inputs(self) -> bool:
        """True if the caller of a saved model can give it other weights; ``save`` may write it after the export."""
        return self.keep_initializers_as_inputs or not self.include_initializers

    def __post_init__(self) -> None:
        check_level(self.metadata)
        if self.destination is not None:
            check_destination(self.destination, self.external_data)


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export: how to export, whereas the Request holds what to export.

    Attributes:
        opset: the opset of the model. The model is translated in ``opsets.native(opset)`` and converted if they differ.
        optimize: whether the optimizer runs.
        without: the names of the optimizer's passes that are left out.
        fold_constants: whether operators on constants and weights are computed.
        verify: whether the model is checked and its results are compared with those of the module.
        check: whether the model is checked, also without ``verify``.
        doc_strings: whether each node gets its source lines as doc_string.
        operator_export_type: how a call with neither a translation nor a decomposition is exported.
        autograd_inlining: whether the forward of a torch.autograd.Function without a translation is traced.
        custom_translation_table: the user's translations, FX target → function.
        custom_opsets: the versions of the domains of custom operators; 1 for a domain that is not among them.
        registered_symbolics: the registered symbolic functions, TorchScript's name of an operator → function. A
            translation in ``custom_translation_table`` has precedence.
        plugin_translations: the translations of plug-ins. Both other kinds have precedence.
        modules_as_functions: the module classes whose calls become calls of local functions; True means all classes.
        save: where and how to save the model.
        target: the runtime whose legalizations run. None means ONNX Runtime's CPU provider.
        rules: the user's rewrites, which run after the optimizer.

    Raises:
        ArgumentError: ``modules_as_functions`` is neither a bool nor a set of module classes, or it is set and the
            opset is too old for local functions, or ``without`` has a name of no pass, or ``custom_opsets`` has other
            entries than domains and versions, or ``rules`` has something else than valid rules.
    """

    opset: int = opsets.DEFAULT_OPSET
    optimize: bool = True
    without: Collection[str] = ()
    fold_constants: bool = True
    verify: bool = False
    check: bool = False
    doc_strings: bool = False
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX
    autograd_inlining: bool = True
    custom_translation_table: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    custom_opsets: Mapping[str, int] = field(default_factory=dict)
    registered_symbolics: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    plugin_translations: Sequence[Translation] = ()
    modules_as_functions: bool | Collection[type[nn.Module]] = False
    save: SaveOptions = SaveOptions()
    target: Target | None = None
    rules: Sequence[Rule] = ()

    def __post_init__(self) -> None:
        passes_without(self.without, "optimize")
        check_rules(self.rules)
        wanted = self.modules_as_functions
        classes = list(wanted) if isinstance(wanted, Collection) else []
        are_modules = bool(classes) and all(isinstance(cls, type) and issubclass(cls, nn.Module) for cls in classes)
        if not isinstance(wanted, bool) and not are_modules:
            raise ArgumentError(
                f"export_modules_as_functions must be a bool or a set of module classes, not {shown(wanted)}."
            )
        oldest = opsets.OLDEST_OPSET_WITH_FUNCTIONS
        if wanted and self.opset < oldest:
            raise ArgumentError(
                f"export_modules_as_functions needs opset {oldest} or above, not {self.opset}.",
                id=MessageId.OPSET_LACKS_OPERATOR,
            )
        for domain, version in self.custom_opsets.items():
            check_name("A domain in custom_opsets", domain)
            if domain == "ai.onnx":
                raise ArgumentError(
                    "custom_opsets is for other domains than ONNX's own; give opset_version instead.",
                    id=MessageId.CUSTOM_OPSETS,
                )
            if not isinstance(version, int) or isinstance(version, bool) or version < 1:
                raise ArgumentError(
                    f"The version of {domain!r} in custom_opsets must be a number, not {shown(version)}.",
                    id=MessageId.CUSTOM_OPSETS,
                )

    @property
    def is_native(self) -> bool:
        """True if the model is translated in its final opset and needs no conversion."""
        return opsets.native(self.opset) == self.opset

    @property
    def keeps_autograd_functions(self) -> bool:
        """True if each torch.autograd.Function is one operator, also without a translation."""
        modes = (OperatorExportTypes.ONNX_ATEN_FALLBACK, OperatorExportTypes.ONNX_FALLTHROUGH)
        return not self.autograd_inlining or self.operator_export_type in modes

    @property
    def module_classes(self) -> set[str] | None:
        """The qualified names of the classes in ``modules_as_functions``; None means all classes."""
        wanted = self.modules_as_functions
        return None if isinstance(wanted, bool) else {metadata.qualified_name(cls) for cls in wanted}


# ---------------------------------------------------------------- the arguments of a call

_MOST_ITEMS = 24
_MOST_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True)
class ExportArguments:
    """The arguments of ``export()``, as the caller gave them. The fields are its parameters, with their defaults.

    The last two fields are what a removed keyword sets and no parameter of today does.

    Attributes:
        check: whether the model is checked, also without ``verify``.
        doc_strings: whether each node gets its source lines as doc_string; None follows ``verbose``.
    """

    model: Any
    args: tuple[Any, ...] | list[Any] | torch.Tensor | Mapping[str, Any] = ()
    f: str | os.PathLike[str] | BinaryIO | None = None
    kwargs: Mapping[str, Any] | None = None
    verbose: bool | None = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    opset_version: int | None = None
    dynamo: bool = True
    external_data: bool | None = None
    dynamic_shapes: Any | None = None
    custom_translation_table: Mapping[Callable[..., Any], Callable[..., Any]] | None = None
    report: bool = False
    optimize: bool | Collection[str] = True
    verify: bool = False
    profile: bool = False
    dump_exported_program: bool = False
    artifacts_dir: str | os.PathLike[str] = "."
    export_params: bool = True
    keep_initializers_as_inputs: bool | None = False
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None
    training: TrainingMode | None = None
    operator_export_type: OperatorExportTypes | None = OperatorExportTypes.ONNX
    do_constant_folding: bool = True
    custom_opsets: Mapping[str, int] | None = None
    export_modules_as_functions: bool | Collection[type[torch.nn.Module]] = False
    autograd_inlining: bool = True
    target: str | Target | None = None
    metadata: str = "full"
    progress: bool | None = None
    rules: Sequence[Rule | str] = ()
    check: bool = field(default=False, repr=False)
    doc_strings: bool | None = field(default=None, repr=False)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the default of each field, by name."""
        return {each.name: each.default for each in fields(cls)}

    def given(self) -> dict[str, Any]:
        """Returns the arguments that are not the defaults, by parameter."""
        values = ((each, getattr(self, each.name)) for each in fields(self) if each.repr)
        return {each.name: value for each, value in values if value is not each.default}

    def with_own_examples(self) -> ExportArguments:
        """Returns the arguments, completed by those that a ``torch.onnx.ExportableModule`` holds.

        The module's example arguments, dynamic shapes and names are used if the call gives no example arguments, as in
        torch.onnx. Dynamic shapes or names that the call gives have precedence.
        """
        is_empty = isinstance(self.args, (tuple, list)) and not self.args
        if not isinstance(self.model, torch.onnx.ExportableModule) or not is_empty or self.kwargs:
            return self
        args, kwargs = self.model.example_arguments()
        shapes = self.dynamic_shapes
        return replace(
            self,
            args=args,
            kwargs=kwargs,
            input_names=self.model.input_names() if self.input_names is None else self.input_names,
            output_names=self.model.output_names() if self.output_names is None else self.output_names,
            dynamic_shapes=self.model.dynamic_shapes() if shapes is None and not self.dynamic_axes else shapes,
        )

    def call(self) -> str:
        """Returns the call with the arguments that were given, one a line; tensors are shown by dtype and shape."""
        given = self.given()
        positional = [given.pop(name) for name in ("model", "args") if name in given]
        lines = [*map(_text, positional), *(f"{name}={_text(value)}" for name, value in given.items())]
        return "fx_onnx.export(\n" + "".join(f"    {line},\n" for line in lines) + ")"


def _text(value: Any) -> str:
    """Returns an argument as it might be written, without running code of the user's classes."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if type(value) in (tuple, list, set, frozenset, dict):
        return _container(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (str, os.PathLike)):
        return repr(os.fspath(value)[:_MOST_CHARACTERS])
    if value is None or isinstance(value, (bool, int, float, bytes, complex)):
        return reprlib.repr(value)
    return str(value.__qualname__) if hasattr(value, "__qualname__") else f"{type(value).__name__}(...)"


def _container(value: Any) -> str:
    if type(value) is dict:
        items = [f"{_text(key)}: {_text(each)}" for key, each in list(value.items())[:_MOST_ITEMS]]
    else:
        items = [_text(each) for each in list(value)[:_MOST_ITEMS]]
    text = ", ".join([*items, "..."] if len(value) > _MOST_ITEMS else items)
    if type(value) is tuple:
        return f"({text}{',' if len(value) == 1 else ''})"
    return f"[{text}]" if type(value) is list else f"{{{text}}}"
