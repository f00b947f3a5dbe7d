"""The generated signatures of ONNX's operators: up to date, absent at run time, and checked by mypy."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from fx_onnx.translation.operator_methods import OperatorMethods
from tools.operator_methods import TARGET, generate

ROOT = Path(__file__).parents[2]

PROGRAM = """
from fx_onnx.translation.emitter import Emitter
from onnx_ir import Value

def f(op: Emitter, x: Value) -> None:
    reveal_type(op.Attention(x, x, x, is_causal=1, scale=None))
    reveal_type(op.TopK(x, [1]))
    reveal_type(op.Dropout(x, 0.5, True, outputs=2))
    reveal_type(op.Split(x, axis=0, outputs=len("ab")))
    op.Attention(x, x, x, causal=True)
    op.Attention(x, x)
    op.Concat(x, x)
    op.NoSuchOperator(x)
    op.Relu(None)
"""

EXPECTED = [
    'Revealed type is "onnx_ir._core.Value"',
    'Revealed type is "tuple[onnx_ir._core.Value, onnx_ir._core.Value]"',
    'Revealed type is "tuple[onnx_ir._core.Value, ...]"',
    'Revealed type is "onnx_ir._core.Value | tuple[onnx_ir._core.Value, ...]"',
    'did you mean "is_causal"?',
    'No overload variant of "Attention"',
    'Missing named argument "axis" for "Concat"',
    '"Emitter" has no attribute "NoSuchOperator"',
    'Argument 1 to "Relu" of "OperatorMethods" has incompatible type "None"',
]

# mypy follows the imports that the signatures, the emitter and its bases need. All imports take 40 s without a cache.
SETTINGS = """
[mypy]
strict = true
follow_imports = skip
[mypy-fx_onnx.translation.*,numpy,torch,torch._C]
follow_imports = silent
[mypy-onnx_ir,onnx_ir._core,onnx_ir._enums,onnx_ir._protocols,onnxscript,onnxscript._internal.tape_builder]
follow_imports = silent
"""


def test_the_generated_file_is_up_to_date() -> None:
    text = TARGET.read_text(encoding="utf-8")
    if f"ONNX {onnx.__version__}." not in text:
        pytest.skip(f"generated from another version of ONNX than {onnx.__version__}")
    assert text == generate(), "run python -m tools.operator_methods"


def test_the_methods_do_not_exist_at_run_time() -> None:
    assert not [name for name in vars(OperatorMethods) if name[0].isupper()]


def test_mypy_checks_inputs_attributes_and_results(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    settings = tmp_path / "mypy.ini"
    settings.write_text(SETTINGS)
    options = ["--no-error-summary", "--hide-error-context", "--config-file", str(settings)]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir", str(tmp_path / "cache"), str(file)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    start = PROGRAM.splitlines().index("    reveal_type(op.Attention(x, x, x, is_causal=1, scale=None))") + 1
    for line, expected in enumerate(EXPECTED, start):
        messages = [message for message in found.splitlines() if f"{file.name}:{line}: " in message]
        assert any(expected in message for message in messages), f"{expected} is not in\n{found}"
