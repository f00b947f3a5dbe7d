"""The user's names for inputs, outputs and the dims of outputs."""

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import ArgumentError
from fx_onnx.onnx_model import metadata


class Two(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x + y, x * y


EXAMPLE = (torch.randn(2, 3), torch.randn(2, 3))


def names(**options: object) -> tuple[list[str], list[str]]:
    graph = fx_onnx.export(Two().eval(), EXAMPLE, **options).model.graph  # type: ignore[arg-type]
    return [str(v.name) for v in graph.inputs], [str(v.name) for v in graph.outputs]


def test_names_in_order_and_the_rest_as_they_are() -> None:
    assert names(input_names=["a"], output_names=["p"]) == (["a", "y"], ["p", "mul"])


def test_names_may_be_swapped() -> None:
    assert names(input_names=["y", "x"], output_names=["mul", "add"]) == (["y", "x"], ["mul", "add"])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"output_names": ["x"]}, "x"),
        ({"output_names": ["p", "y"], "input_names": ["a"]}, "y"),
        ({"input_names": ["y"]}, "y"),
    ],
)
def test_no_input_loses_its_name_to_another_value(options: dict[str, object], name: str) -> None:
    with pytest.raises(ArgumentError, match=f"'{name}' in input_names or output_names is the name of an input that"):
        names(**options)


@pytest.mark.parametrize("options", [{"input_names": ["a", "a"]}, {"output_names": ["a", "a"]}])
def test_a_name_is_given_once(options: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match="must differ; repeated: a"):
        names(**options)


def test_a_name_may_be_free_again_or_that_of_an_inner_value_or_a_dim() -> None:
    assert names(input_names=["a", "b"], output_names=["x", "y"]) == (["a", "b"], ["x", "y"])
    assert names(input_names=["add"]) == (["add", "y"], ["add_1", "mul"])
    program = fx_onnx.export(Two().eval(), EXAMPLE, output_names=["n"], dynamic_shapes=({0: "n"}, {0: "n"}))
    assert program.model.graph.outputs[0].name == "n"
    assert program.model.graph.outputs[0].shape == ("n", 3)


def test_the_original_name_is_kept_as_metadata() -> None:
    graph = fx_onnx.export(Two().eval(), EXAMPLE, input_names=["a"]).model.graph
    assert graph.inputs[0].metadata_props[metadata.ORIGINAL_NODE_NAME] == "x"


def test_too_many_output_names() -> None:
    with pytest.raises(ArgumentError, match="output_names has 3 names, but the model has 2 outputs"):
        names(output_names=["a", "b", "c"])


def test_dynamic_axes_name_the_dims_of_outputs() -> None:
    program = fx_onnx.export(
        Two().eval(),
        EXAMPLE,
        input_names=["x", "y"],
        output_names=["p", "q"],
        dynamic_axes={"x": {0: "rows"}, "y": {0: "rows"}, "p": {0: "out_rows"}, "q": [0]},
    )
    assert program.model.graph.outputs[0].shape == ("out_rows", 3)
    assert program.model.graph.outputs[1].shape == ("q_dynamic_axes_1", 3)


def test_an_axis_that_the_output_does_not_have() -> None:
    with pytest.raises(ArgumentError, match="names axis 5 of the output 'p', which has no such axis"):
        fx_onnx.export(Two().eval(), EXAMPLE, output_names=["p"], dynamic_axes={"p": {5: "a"}})
