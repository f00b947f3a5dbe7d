"""Every network of the table is exported, checked by the ONNX checker, and compared with eager at two sizes."""

from collections.abc import Iterator
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close
from tests.models.registry import CASES, Inputs, ModelCase

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, id=f"{case.name}-{str(dtype).removeprefix('torch.')}")
        for case in CASES
        for dtype in case.dtypes
    ],
)
def test_model(case: ModelCase, dtype: torch.dtype) -> None:
    """Exports once; checks the program and its results at the exported size and at another one."""
    module, example = case.build(dtype), case.example().to(dtype)
    program = case.export(dtype)
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert_inputs_keep_their_dims(program, case, example)
    assert_parameters_keep_their_names(program, module)
    for inputs in (example, case.other().to(dtype)):
        got = program(*inputs.args, **inputs.kwargs)
        with torch.no_grad():
            assert_close(got, module(*inputs.args, **inputs.kwargs))
        assert_outputs_as_declared(program, got)


def test_mlp_inputs_have_the_requested_names() -> None:
    """Tests that inputs in a dict and a list have the names of input_names, in order, and the named dim."""
    case = next(case for case in CASES if case.name == "mlp")
    program = case.export()
    graph = program.model.graph
    assert [value.name for value in graph.inputs] == ["tensor_input", "tensor_x", "list_input_index_0"]
    assert [value.name for value in graph.outputs] == ["output"]
    assert graph.inputs[0].shape == ("batch_size", 8)
    assert graph.inputs[1].shape == ("batch_size", 8)
    assert graph.inputs[2].shape == ("batch_size", 8)


def assert_inputs_keep_their_dims(program: fx_onnx.ONNXProgram, case: ModelCase, example: Inputs) -> None:
    """Checks that each dynamic dim has its name, and that every other dim is the example's size."""
    shapes = list(_expected_shapes(case.dynamic_shapes, example.args or example.kwargs))
    for value, expected in zip(program.model.graph.inputs, shapes, strict=True):
        assert value.shape == expected, f"{value.name}: {value.shape} instead of {expected}"


def assert_parameters_keep_their_names(program: fx_onnx.ONNXProgram, module: nn.Module) -> None:
    """Checks that each parameter has its name in the state dict, and its value."""
    state = module.state_dict()
    parameters = [
        value for value in program.model.graph.initializers.values() if value.metadata_props.get(KIND) == "PARAMETER"
    ]
    assert parameters
    for value in parameters:
        assert value.name in state, f"{value.name} is not a name in the state dict"
        assert_close(torch.from_numpy(value.const_value.numpy().copy()), state[value.name], tolerance=0.0)


def assert_outputs_as_declared(program: fx_onnx.ONNXProgram, outputs: tuple[Tensor, ...]) -> None:
    """Checks that the outputs have the declared static dims, because ONNX Runtime only warns when they differ."""
    for value, output in zip(program.model.graph.outputs, outputs, strict=True):
        for declared, actual in zip(value.shape, output.shape, strict=True):
            assert not isinstance(declared, int) or declared == actual, f"{value.name}: {value.shape} gave {actual}"


def _expected_shapes(spec: Any, value: Any) -> Iterator[tuple[int | str, ...]]:
    """Yields the input shapes in the order of the flattened arguments, with names for the dynamic dims."""
    if isinstance(value, Tensor):
        yield tuple(spec.get(dim, size) for dim, size in enumerate(value.shape))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _expected_shapes(spec[key], item)
    else:
        for part, item in zip(spec, value, strict=True):
            yield from _expected_shapes(part, item)
