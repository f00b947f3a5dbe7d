"""Writes a model with its inputs, PyTorch's results and a script that compares them in ONNX Runtime alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from fx_onnx.files.save import save
from fx_onnx.passes.numpy_boundary import with_numpy_boundary
from fx_onnx.program.input_binding import bind
from fx_onnx.verification.first_difference import ComparedPart, PartComparison
from fx_onnx.verification.model_parts import GIVEN
from fx_onnx.verification.reference_runs import Sample, Sides

__all__ = ["repro_of_model", "repro_of_part", "write_repro"]

SCRIPT = '''"""Compares a model in ONNX Runtime with the results of PyTorch. It needs onnxruntime and numpy.

{title}

The exit status is 1 if a result differs. A dtype that NumPy lacks (bfloat16, float8) is float32 here, and the model
casts it.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

INPUTS = {inputs}  # name of the input: name in data.npz
OUTPUTS = {outputs}  # name of the output: (name in data.npz, allowed difference)

folder = Path(__file__).resolve().parent
data = np.load(folder / "data.npz")
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
options.add_session_config_entry("session.disable_quant_qdq", "1")
session = onnxruntime.InferenceSession(
    str(folder / "model.onnx"),
    options,
    providers=[{provider}],
    disabled_optimizers=["EliminateDropout"],
)
found = session.run(list(OUTPUTS), {{name: data[key] for name, key in INPUTS.items()}})
differs = False
for (name, (key, allowed)), value in zip(OUTPUTS.items(), found):
    expected = data[key]
    if value.shape != expected.shape:
        print(f"{{name}}: differs: the shape is {{value.shape}} instead of {{expected.shape}}")
        differs = True
        continue
    left, right = value.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(left) & np.isfinite(right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    largest = float(np.abs(left - right, where=finite, out=np.zeros_like(left)).max(initial=0))
    nonfinite = int((~finite & ~same).sum())
    wrong = largest > allowed or nonfinite > 0
    differs = differs or wrong
    print(
        f"{{name}}: {{'differs' if wrong else 'agrees'}}: the largest difference is {{largest:.3g}} "
        f"({{allowed:.3g}} allowed), {{nonfinite}} elements are not finite on one side only"
    )
sys.exit(1 if differs else 0)
'''


def write_repro(
    folder: Path,
    model: ir.Model,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, tuple[Any, float]],
    title: str,
    provider: str | None = None,
) -> Path:
    """Writes ``model.onnx``, ``data.npz`` and ``repro.py`` to an existing folder, and returns the path of the script.

    Args:
        folder: the folder.
        model: the model; it is changed.
        inputs: the inputs by name.
        outputs: PyTorch's result and the allowed difference by the name of the output.
        title: what the repro shows, in one line.
        provider: the execution provider; None is the CPU.
    """
    arrays = {f"input_{index}": _array(value) for index, value in enumerate(inputs.values())}
    arrays |= {f"expected_{index}": _array(value) for index, (value, _) in enumerate(outputs.values())}
    fed = {name: f"input_{index}" for index, name in enumerate(inputs)}
    wanted = {name: (f"expected_{index}", allowed) for index, (name, (_, allowed)) in enumerate(outputs.items())}
    save(with_numpy_boundary(model), folder / "model.onnx")
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    script = folder / "repro.py"
    text = SCRIPT.format(title=title, inputs=fed, outputs=wanted, provider=f'"{provider or "CPUExecutionProvider"}"')
    script.write_text(text, encoding="utf-8")
    return script


def repro_of_part(
    folder: Path, comparison: PartComparison, compared: ComparedPart, title: str, provider: str | None
) -> Path:
    """Writes a part of a model with the values of PyTorch that it reads; see ``write_repro``."""
    model = comparison.parts.extract([compared.part])
    inputs = {str(value.name): compared.inputs[str(value.name).removesuffix(GIVEN)] for value in model.graph.inputs}
    outputs = {compared.part.name: (compared.expected, compared.difference.tolerance)}
    return write_repro(folder, model, inputs, outputs, title, provider)


def repro_of_model(folder: Path, sides: Sides, sample: Sample, title: str) -> Path:
    """Writes the whole model with the arguments of a call; see ``write_repro``."""
    program = sides.program
    inputs = bind(program.model.graph, program.exported_program, tuple(sample.args), dict(sample.kwargs))
    pairs = zip(sample.pairs, sample.outputs, strict=True)
    outputs = {name: (expected, difference.tolerance) for (name, expected, _), difference in pairs}
    return write_repro(folder, program.model.clone(), inputs, outputs, title, sides.provider)


def _array(value: Any) -> np.ndarray[Any, Any]:
    """Returns a value as an array of a dtype of NumPy. A complex tensor becomes its real view."""
    tensor = value.detach().cpu() if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    is_lacking = tensor.dtype == torch.bfloat16 or str(tensor.dtype).startswith("torch.float8")
    array: np.ndarray[Any, Any] = (tensor.float() if is_lacking else tensor).numpy()
    return array
