"""The custom translations of one export: those that extend its table, and what its capture keeps whole for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Graph

from fx_onnx.custom_translations.autograd_functions import has_symbolic, trace_as_operators
from fx_onnx.custom_translations.kept_functions import computations, keep_functions, kept_by_operator
from fx_onnx.custom_translations.user_translations import (
    as_translation,
    is_autograd_function,
    is_kept,
    symbolic_function,
    targets,
    translations,
)
from fx_onnx.extension_points.translation_table import Translation, TranslationTable
from fx_onnx.program.export_options import ExportOptions
from fx_onnx.translation.symbolic_registry import PYTHON_OP, is_of_library, operator_named

__all__ = ["ExportTranslations"]


class ExportTranslations:
    """The custom translations of one export. Those of the user have precedence over registered ones and plug-ins."""

    def __init__(self, options: ExportOptions) -> None:
        """Takes the options of the export."""
        self._custom, self._plugins = options.custom_translation_table, options.plugin_translations
        self._registered, self._python_op = options.registered_symbolics, options.registered_symbolics.get(PYTHON_OP)
        self._keeps_all = options.keeps_autograd_functions

    def extended(self, table: TranslationTable) -> TranslationTable:
        """Returns a table with these translations."""
        table = table.extended(self._plugins)
        table = table.extended(list(self._of_registered(table)))
        return table.extended(translations(self._custom, table.opset))

    def _of_registered(self, table: TranslationTable) -> Iterator[Translation]:
        """Yields the translations that registered symbolic functions give to the operators of this process.

        A library registers functions for its own operators with torch.onnx when it is imported, as torchvision does.
        They are written for TorchScript's exporter, so the table has precedence over them.
        """
        for name, function in self._registered.items():
            packet, of_library = operator_named(name), is_of_library(name, function)
            for target in () if packet is None else targets(packet):
                if not (of_library and target in table):
                    yield as_translation(symbolic_function(function, target, table.opset))

    def notes(self) -> Iterator[str]:
        """Yields what the log tells of them before the capture."""
        if self._plugins:
            yield f"plug-ins translate {', '.join(sorted(str(plugin.target) for plugin in self._plugins))}"
        # prim::PythonOp is no operator either; see ``with_functions``
        unknown = [name for name in self._registered if name != PYTHON_OP and operator_named(name) is None]
        if unknown:
            yield f"no operator has the names of registered symbolic functions: {', '.join(unknown)}"

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Makes torch trace each function that has a translation as one operator, in the current thread."""
        keys = [*self._custom, *(plugin.target for plugin in self._plugins)]
        functions, where_possible = filter(is_autograd_function, keys), self._python_op is not None
        whole = trace_as_operators(functions, every=self._keeps_all, where_possible=where_possible)
        with whole, keep_functions(filter(is_kept, keys)):
            yield

    def with_functions(self, program: ExportedProgram, table: TranslationTable) -> TranslationTable:
        """Returns a table with the operators that replaced functions during the capture.

        A translation of the function in the table has precedence over its ``symbolic`` method, and this over the
        symbolic function that is registered for ``prim::PythonOp``.
        """
        for target, function in kept_by_operator(program).items():
            if self._python_op is not None and is_autograd_function(function):
                symbolic = symbolic_function(self._python_op, function, table.opset, is_python_op=True)
                table = table.extended([as_translation(symbolic, target)])
            if has_symbolic(function):
                method = symbolic_function(function.symbolic, function, table.opset)
                table = table.extended([as_translation(method, target)])
            if function in table:
                table = table.extended([replace(table[function], target=target)])
        return table

    def computations(self, program: ExportedProgram) -> dict[Any, Callable[..., Any]]:
        """Returns what computes these operators, which is traced where a symbolic function declines a call.

        A function that must stay whole is not among them.
        """
        return {} if self._keeps_all else dict(computations(program))

    def unused(self, program: ExportedProgram, graphs: Iterable[Graph]) -> str:
        """Returns a phrase on the keys of custom_translation_table that no graph calls; empty if there are none."""
        called = {node.target for graph in graphs for node in graph.nodes if node.op == "call_function"}
        called |= set(kept_by_operator(program).values())
        unused = [str(key) for key in self._custom if called.isdisjoint(targets(key))]
        return f"custom_translation_table has unused entries: {', '.join(unused)}" if unused else ""
