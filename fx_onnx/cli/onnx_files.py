"""Reads ONNX files for the commands ``check``, ``show`` and ``diff``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch

from fx_onnx.cli.example_inputs import random_tensor
from fx_onnx.messages.errors import ArgumentError, CheckerError, OnnxExporterError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.weights import as_torch
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.session import new_session, run_session
from fx_onnx.verification.reference_runs import Sides
from fx_onnx.verification.tensor_comparison import Difference

__all__ = ["FileComparison", "check", "compare_files", "read"]

_SIZES = (2, 5)
"""The sizes that a comparison gives to dims without a size, in turn."""


def read(path: Path) -> ONNXProgram:
    """Reads a model; its weights stay in the file and are mapped into memory.

    Raises:
        ArgumentError: the file is no ONNX model.
    """
    with _failures_as(ArgumentError, f"{path} is not an ONNX model", MessageId.ONNX_FILE):
        proto = onnx.load(path, load_external_data=False)
        if problem := _problem(proto):
            raise ValueError(problem)
        program = ONNXProgram(ir.from_proto(proto))
        ir.external_data.set_base_dir(program.model.graph, path.parent)
    if not program.model.opset_imports:  # protobuf reads almost any bytes as a message with unknown fields
        raise ArgumentError(f"{path} is not an ONNX model: it imports no opset.", id=MessageId.ONNX_FILE)
    program.file = path
    return program


def _problem(message: Any) -> str:
    """Returns why a message of protobuf is no part of a model, although protobuf reads it; empty if it is one.

    protobuf gives bytes for a text that is not UTF-8.
    """
    if isinstance(message, onnx.TensorProto) and (problem := _problem_of_tensor(message)):
        return f"the tensor {message.name!r} {problem}"
    if isinstance(message, onnx.OperatorSetIdProto) and not 0 <= message.version < 2**31:
        return f"{message.version} is no version of a domain"
    for descriptor, value in message.ListFields():
        values = value if descriptor.is_repeated else (value,)
        if descriptor.type == descriptor.TYPE_STRING and not all(isinstance(text, str) for text in values):
            return f"its {descriptor.name} is not UTF-8"
        if descriptor.type == descriptor.TYPE_MESSAGE and (inner := next(filter(None, map(_problem, values)), "")):
            return inner
    return ""


def _problem_of_tensor(tensor: onnx.TensorProto) -> str:
    if not tensor.data_type:
        return "has no dtype"
    if tensor.external_data and tensor.data_type == onnx.TensorProto.STRING:
        return "has texts in another file, which ONNX does not allow"
    return (
        "names a file with a null character" if any("\0" in str(entry.value) for entry in tensor.external_data) else ""
    )


def check(path: Path) -> list[str]:
    """Returns what is wrong with a model: each problem in a sentence, and nothing if the model is valid.

    ONNX's checker and its strict shape inference read the model, and ONNX Runtime loads it.
    """
    read(path)
    problems = []
    for name, accept in (
        ("ONNX's checker", lambda: onnx.checker.check_model(str(path), full_check=True)),
        ("ONNX Runtime", lambda: new_session(str(path))),
    ):
        try:
            with _failures_as(CheckerError, name):
                accept()
        except CheckerError as error:
            problems.append(str(error))
    return problems


@contextmanager
def _failures_as(kind: type[OnnxExporterError], what: str, id: MessageId | None = None) -> Iterator[None]:
    """Turns the errors of protobuf, onnx, onnx_ir and ONNX Runtime, which are of many classes, into one sentence."""
    try:
        yield
    except Exception as error:
        raise kind(f"{what}: {' '.join(str(error).split())}", id=id) from error


@dataclass(frozen=True)
class FileComparison:
    """How two models differ.

    Attributes:
        operators: operator → its number of nodes in the first and in the second model, where these differ.
        interface: inputs and outputs that only one of the models has; each text begins with the model, 1 or 2.
        weights: weights that only one model has, or that have other shapes, dtypes or values; each in a sentence.
        numbers: the outputs compared on the same random inputs; empty if the inputs of the models differ.
    """

    operators: dict[str, tuple[int, int]]
    interface: list[str]
    weights: list[str]
    numbers: list[Difference] = field(default_factory=list)

    @property
    def skipped(self) -> str:
        """Why the results were not compared, as a sentence; empty if they were compared."""
        return "The results are not compared, because the inputs or outputs differ." if self.interface else ""

    @property
    def same_numbers(self) -> bool:
        """True if the models have equal inputs and outputs, and equal results within the tolerance of the dtypes."""
        return not self.interface and all(number.ok for number in self.numbers)


def compare_files(first: Path, second: Path) -> FileComparison:
    """Compares the nodes, weights, inputs, outputs of two models, and their results on the same random inputs."""
    a, b = read(first), read(second)
    counts = [program.summary() for program in (a, b)]
    operators = {
        name: (counts[0].operators[name], counts[1].operators[name])
        for name in sorted({*counts[0].operators, *counts[1].operators})
        if counts[0].operators[name] != counts[1].operators[name]
    }
    interface = [
        f"{number}: {kind} {text}"
        for kind, (left, right) in (
            ("input", (counts[0].inputs, counts[1].inputs)),
            ("output", (counts[0].outputs, counts[1].outputs)),
        )
        for number, texts, others in ((1, left, right), (2, right, left))
        for text in texts
        if text not in others
    ]
    numbers = [] if interface else _numbers(a, b, first, second)
    return FileComparison(operators, interface, _weights(a, b), numbers)


def _weights(a: ONNXProgram, b: ONNXProgram) -> list[str]:
    left, right = _initializers(a), _initializers(b)
    differences = []
    for name in sorted({*left, *right}):
        one, other = left.get(name), right.get(name)
        if one is None or other is None:
            differences.append(f"{name}: only in {'the second' if one is None else 'the first'} model")
        elif (one.dtype, one.shape) != (other.dtype, other.shape):
            differences.append(f"{name}: {one.dtype.name}{list(one.shape)} and {other.dtype.name}{list(other.shape)}")
        elif one.tobytes() != other.tobytes():
            differences.append(f"{name}: other values")
    return differences


def _initializers(program: ONNXProgram) -> dict[str, ir.TensorProtocol]:
    tensors = ((name, value.const_value) for name, value in program.model.graph.initializers.items())
    return {name: tensor for name, tensor in tensors if tensor is not None}


def _numbers(a: ONNXProgram, b: ONNXProgram, first: Path, second: Path) -> list[Difference]:
    """Runs both models on the same random inputs.

    Raises:
        OnnxExporterError: one of the models does not run.
    """
    inputs = _random_inputs(a.model.graph)
    names = [[str(value.name) for value in program.model.graph.outputs] for program in (a, b)]

    def run(path: Path) -> tuple[torch.Tensor, ...]:
        with _failures_as(OnnxExporterError, f"{path} does not run on random inputs"):
            return run_session(new_session(str(path)), inputs)

    def expected() -> list[torch.Tensor]:
        results = dict(zip(names[0], run(first), strict=True))
        return [results[name] for name in names[1]]

    return list(Sides(b, expected, run=lambda: run(second)).sample((), {}).outputs)


def _random_inputs(graph: ir.Graph) -> dict[str, torch.Tensor]:
    """Returns a random tensor for each input; equal dim names get equal sizes, and unknown dims the size 2."""
    sizes: dict[str, int] = {}
    inputs = {}
    for value in graph.inputs:
        if value.is_initializer():
            continue
        if value.shape is None or value.dtype is None:
            raise ArgumentError(
                f"The input {value.name} has no shape or no dtype, so its results cannot be compared; declare both.",
                id=MessageId.ONNX_FILE,
            )
        shape = []
        for dim in value.shape:
            if isinstance(dim, int):
                shape.append(dim)
            else:
                key = str(dim.value)
                shape.append(sizes.setdefault(key, _SIZES[len(sizes) % len(_SIZES)]) if dim.value else 2)
        empty = as_torch(ir.Tensor(np.zeros(0, dtype=value.dtype.numpy())))
        inputs[str(value.name)] = random_tensor(empty.dtype, shape)
    return inputs


def as_json(comparison: FileComparison) -> dict[str, Any]:
    """Returns a comparison as an object of JSON."""
    return {
        "operators": {name: list(counts) for name, counts in comparison.operators.items()},
        "interface": comparison.interface,
        "weights": comparison.weights,
        "numbers": {number.name: {"ok": number.ok, "max_abs": number.max_abs} for number in comparison.numbers},
        "numbers_compared": not comparison.skipped,
        "same_numbers": comparison.same_numbers,
    }
