"""The custom translations of one export: what the log tells, and which table its capture and translation use."""

from __future__ import annotations

import pytest
import torch

import fx_onnx.translations  # noqa: F401  registers the translations
from fx_onnx.custom_translations.export_translations import ExportTranslations
from fx_onnx.extension_points.translation_table import Translation, translation_table
from fx_onnx.program.export_options import ExportOptions
from fx_onnx.translation.symbolic_registry import PYTHON_OP

ATEN = torch.ops.aten
RELU, ABS = ATEN.relu.default, ATEN.abs.default
OF_PLUGIN = Translation(RELU, lambda op, x: op.Relu(x), is_custom=True)
REGISTERED = {"aten::relu": lambda g, x: g.op("Relu", x), "none::such": lambda g: g}


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        (ExportOptions(), []),
        (ExportOptions(plugin_translations=(OF_PLUGIN,)), ["plug-ins translate aten.relu.default"]),
        (
            ExportOptions(registered_symbolics=REGISTERED),
            ["no operator has the names of registered symbolic functions: none::such"],
        ),
        (ExportOptions(registered_symbolics={PYTHON_OP: lambda g, *args: g}), []),
    ],
)
def test_the_log_tells_what_they_are(options: ExportOptions, notes: list[str]) -> None:
    assert list(ExportTranslations(options).notes()) == notes


def test_the_user_has_precedence_over_registered_functions_and_these_over_plugins() -> None:
    table = translation_table(18)
    given = {
        "plugin_translations": (OF_PLUGIN,),
        "registered_symbolics": REGISTERED,
        "custom_translation_table": {RELU: lambda op, x: op.Abs(x)},
    }
    names = {}
    for keys in (["plugin_translations"], ["plugin_translations", "registered_symbolics"], [*given]):
        extended = ExportTranslations(ExportOptions(**{key: given[key] for key in keys})).extended(table)
        names[len(keys)] = extended[RELU]
        assert extended[ABS] is table[ABS]
    assert names[1].function is OF_PLUGIN.function
    assert len({id(entry.function) for entry in names.values()}) == 3
    assert names[3].next is not None
    assert names[3].next.function is not OF_PLUGIN.function


def test_an_unused_entry_is_told() -> None:
    translations = ExportTranslations(ExportOptions(custom_translation_table={ABS: lambda op, x: op.Abs(x)}))
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    assert translations.unused(program, [program.graph]) == (
        "custom_translation_table has unused entries: aten.abs.default"
    )
    assert translations.computations(program) == {}
