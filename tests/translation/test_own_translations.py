"""The room of custom translations is imported for an export that has some."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fx_onnx.translations  # noqa: F401  registers the translations
from fx_onnx.extension_points.translation_table import translation_table
from fx_onnx.program.export_options import ExportOptions
from fx_onnx.translation.own_translations import OwnTranslations

LOADED = """
import sys, torch, fx_onnx
def function(symbolic):
    members = {"forward": staticmethod(lambda ctx, x: x * 2), **symbolic}
    return type("Double", (torch.autograd.Function,), members).apply
class Net(torch.nn.Module):
    def forward(self, x):
        %s
symbolic = {"symbolic": staticmethod(lambda g, x: g.op("Relu", x))}
%s
program = fx_onnx.export(Net(), (torch.ones(2),), %s)
print(any(name.startswith("fx_onnx.custom_translations") for name in sys.modules))
print(*(node.op_type for node in program.model_proto.graph.node))
"""


@pytest.mark.parametrize(
    ("forward", "before", "options", "loaded", "operators"),
    [
        ("return x + 1", "", "", False, "Add"),
        ("return function({})(x)", "", "", False, "Mul"),
        ("return function({'symbolic': None})(x)", "", "", False, "Mul"),
        ("return function(symbolic)(x)", "", "", True, "Relu"),  # the forward defines the class
        ("return double(x)", "double = function(symbolic)", "", True, "Relu"),
        ("return x + 1", "double = function(symbolic)", "", True, "Add"),
        ("return x + 1", "", "custom_translation_table={torch.ops.aten.add.Tensor: lambda op, x, y: op.Abs(x)}",
         True, "Abs"),
    ],
)  # fmt: skip
def test_the_room_is_imported_where_it_is_needed(
    forward: str, before: str, options: str, loaded: bool, operators: str
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", LOADED % (forward, before, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-2:] == [str(loaded), operators], done.stderr


@torch.library.custom_op("own_translations::known", mutates_args=())
def known(x: Tensor) -> Tensor:
    return x.clone()


def of_module(name: str) -> Callable[..., Any]:
    def symbolic(g: Any, x: Any) -> Any:
        return x

    symbolic.__module__ = name
    return symbolic


@pytest.mark.parametrize(
    ("name", "module", "needed"),
    [
        ("aten::relu", "user", True),
        ("aten::relu", "aten.library", False),  # the table has it, and that function is for TorchScript's exporter
        ("own_translations::known", "own_translations", True),  # the table lacks it
        ("own_translations::unknown", "own_translations", False),  # no program can call it
        ("prim::PythonOp", "user", True),
    ],
)
def test_functions_that_libraries_register_for_their_operators(name: str, module: str, needed: bool) -> None:
    options = ExportOptions(registered_symbolics={name: of_module(module)})
    own = OwnTranslations(options, translation_table(18))
    assert (own.room is not None) == needed
