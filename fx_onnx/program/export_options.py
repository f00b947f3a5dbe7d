"""The options of an export: how to export a model, and where to save it. ``requests/request.py`` has what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from fx_onnx.extension_points.translation_table import Translation
from fx_onnx.files.destination import check_destination
from fx_onnx.files.metadata_levels import check_level
from fx_onnx.files.save import Destination
from fx_onnx.messages.arguments import check_name, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata, opsets
from fx_onnx.passes.optimize import passes_without
from fx_onnx.passes.rules import Rule, check_rules
from fx_onnx.requests.export_modes import OperatorExportTypes
from fx_onnx.targets.target import Target

__all__ = ["ExportOptions"]


@dataclass(frozen=True)
class ExportOptions:
    """How to export and where to save, whereas the Request holds what to export.

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
        target: the runtime whose legalizations run. None means ONNX Runtime's CPU provider.
        rules: the user's rewrites, which run after the optimizer.
        destination: where to save the model: a path or a binary file; None saves nothing.
        include_initializers: whether the weights are written.
        keep_initializers_as_inputs: whether the weights are graph inputs too.
        external_data: True writes the weights to a file beside the model; None does so above 2 GB only.
        metadata: what the file tells about the model's code; one of ``metadata_levels.LEVELS``.
        bare_declarations: whether files declare the user's inputs and outputs without metadata.

    Raises:
        ArgumentError: ``modules_as_functions`` is neither a bool nor a set of module classes, or it is set and the
            opset is too old for local functions, or ``without`` has a name of no pass, or ``custom_opsets`` has other
            entries than domains and versions, or ``rules`` has something else than valid rules, or the model cannot be
            saved to ``destination``, or there is no such level of metadata.
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
    target: Target | None = None
    rules: Sequence[Rule] = ()
    destination: Destination | None = None
    include_initializers: bool = True
    keep_initializers_as_inputs: bool = False
    external_data: bool | None = None
    metadata: str = "full"
    bare_declarations: bool = False

    def __post_init__(self) -> None:
        check_level(self.metadata)
        if self.destination is not None:
            check_destination(self.destination, self.external_data)
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
                    f"The version of {domain!r} in custom_opsets must be a number from 1 on, not {shown(version)}.",
                    id=MessageId.CUSTOM_OPSETS,
                )

    @property
    def has_weights_as_inputs(self) -> bool:
        """True if the caller of a saved model can give it other weights; ``save`` may write it after the export."""
        return self.keep_initializers_as_inputs or not self.include_initializers

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
