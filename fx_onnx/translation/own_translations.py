"""Finds whether an export has translations besides those of fx_onnx; their room is imported for the first of them.

They are the entries of a custom_translation_table, those of plug-ins, registered symbolic functions, and ``symbolic``
methods of autograd functions, whose classes may be defined by the forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from torch.autograd import Function

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.extension_points.rooms import find, is_installed
from fx_onnx.extension_points.translation_table import TranslationTable
from fx_onnx.translation.symbolic_registry import autograd_functions, is_of_library, operator_named, overloads_of

if TYPE_CHECKING:
    from fx_onnx.custom_translations.export_translations import ExportTranslations
    from fx_onnx.program.export_options import ExportOptions

__all__ = ["OwnTranslations"]


class OwnTranslations:
    """The translations that an export has besides those of fx_onnx.

    Attributes:
        room: what the room makes of them; None if there are none.
    """

    def __init__(self, options: ExportOptions, table: TranslationTable) -> None:
        """Takes the options of the export, and the translations of fx_onnx."""
        self._options, self.room = options, None
        given = options.custom_translation_table or options.plugin_translations or options.keeps_autograd_functions
        if given or any(_is_needed(*pair, table) for pair in options.registered_symbolics.items()):
            self.room = self._made()

    def _made(self) -> ExportTranslations:
        made: ExportTranslations = find("translations", "custom")(self._options)
        return made

    def extended(self, table: TranslationTable) -> TranslationTable:
        """Returns a table with these translations, which have precedence."""
        return table if self.room is None else self.room.extended(table)

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Makes torch trace the functions that have a translation as operators, in the current thread."""
        with ExitStack() as stack:

            def begin(cls: Any) -> None:
                if not is_installed("custom_translations"):  # the model may not call the function
                    stack.enter_context(replace_attribute(cls, "forward", lambda *_, **__: self._made()))
                elif self.room is None:
                    self.room = self._made()
                    stack.enter_context(self.room.traced())

            def define(cls: Any, *args: Any, **kwargs: Any) -> None:
                initialize(cls, *args, **kwargs)
                if _has_symbolic(cls):
                    begin(cls)

            if self.room is not None:
                stack.enter_context(self.room.traced())
            metaclass: Any = type(Function)
            initialize = metaclass.__init__
            stack.enter_context(replace_attribute(metaclass, "__init__", define))
            for cls in autograd_functions():
                if _has_symbolic(cls):
                    begin(cls)
            yield


def _has_symbolic(cls: Any) -> bool:
    return callable(getattr(cls, "symbolic", None))


def _is_needed(name: str, function: Callable[..., Any], table: TranslationTable) -> bool:
    """Returns whether a registered symbolic function translates an operator that the table does not."""
    packet = operator_named(name)
    overloads = [] if packet is None else overloads_of(packet)
    return not is_of_library(name, function) or not all(overload in table for overload in overloads)
