"""Each call that PyTorch's pages on ONNX document runs with the import changed, and each public name is there."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.onnx

from tests.documented_calls import CALLS

NAMES = {
    "": "ExportableModule InputObserver JitScalarType ONNXProgram OnnxExporterError OperatorExportTypes "
    "TensorProtoDataType TrainingMode errors export is_in_onnx_export ops producer_name producer_version "
    "register_custom_op_symbolic select_model_mode_for_export symbolic_helper symbolic_opset10 symbolic_opset9 "
    "unregister_custom_op_symbolic utils",
    "errors": "OnnxExporterError OnnxExporterWarning SymbolicValueError UnsupportedOperatorError",
    "operators": "reshape_from_tensor_shape shape_as_tensor",
    "ops": "aten_decompositions attention rotary_embedding symbolic symbolic_multi_out",
    "symbolic_helper": "args_have_same_dtype cast_pytorch_to_onnx check_training_mode dequantize_helper "
    "is_complex_value parse_args pytorch_name_to_type quantize_helper quantized_args requantize_bias_helper "
    "scalar_name_to_pytorch scalar_type_to_onnx scalar_type_to_pytorch_type",
    "testing": "assert_onnx_program",
    "utils": "disable_apex_o2_state_dict_hook export exporter_context model_signature register_custom_op_symbolic "
    "select_model_mode_for_export setup_onnx_logging unconvertible_ops unpack_quantized_tensor "
    "unregister_custom_op_symbolic warn_on_static_input_change",
    "verification": "VerificationInfo verify_onnx_program",
}
"""The public names of torch.onnx, the same in torch 2.13, 2.14 and 2.15, by the submodule."""

REFUSED = [f"symbolic_opset{opset}" for opset in range(7, 21)]
IMPORTED = {"Any", "TYPE_CHECKING", "annotations", "textwrap", "torch"}
"""What torch's modules import for themselves."""


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_documented_call(call: Callable[[Path], None], tmp_path: Path) -> None:
    call(tmp_path)


STORED = [(module, name) for module, names in NAMES.items() for name in names.split()]


def test_the_list_is_that_of_the_installed_torch() -> None:
    modules = [module.name for module in pkgutil.iter_modules(torch.onnx.__path__) if not module.name.startswith("_")]
    assert {*modules} == {*NAMES, *REFUSED} - {""}
    found = {
        (module, name)
        for module in NAMES
        for name in dir(importlib.import_module(f"torch.onnx.{module}".rstrip(".")))
        if not name.startswith("_") and name not in IMPORTED
    }
    assert found - {("", module) for module in modules} == set(STORED) - {("", module) for module in modules}


@pytest.mark.parametrize(("module", "name"), STORED)
def test_every_public_name_is_there(module: str, name: str) -> None:
    ours = importlib.import_module(f"fx_onnx.{module}".rstrip("."))
    torchs: Any = getattr(importlib.import_module(f"torch.onnx.{module}".rstrip(".")), name)
    value = getattr(ours, name)
    kinds = (types.ModuleType, type, str, dict, list)
    assert [isinstance(value, kind) for kind in kinds] == [isinstance(torchs, kind) for kind in kinds]
    assert callable(value) == callable(torchs)


def test_import_forms_in_a_new_process() -> None:
    code = """
import fx_onnx as onnx, torch
from fx_onnx.testing import assert_onnx_program
from fx_onnx.operators import shape_as_tensor
from fx_onnx import symbolic_opset9
import fx_onnx.symbolic_opset11
assert onnx.testing.assert_onnx_program is assert_onnx_program
assert onnx.TensorProtoDataType is torch.onnx.TensorProtoDataType
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
