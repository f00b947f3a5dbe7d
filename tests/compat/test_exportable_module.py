"""ExportableModule: the module gives its own arguments, unless the call gives some. InputObserver's dynamic shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.compat.exportable_module import ExportableModule
from tests.compare import assert_close


class _Members:
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return x.relu() * scale

    def example_arguments(self) -> Any:
        return (torch.randn(2, 3),), {"scale": torch.ones(3)}

    def dynamic_shapes(self) -> Any:
        return {"x": {0: "batch"}, "scale": None}

    def input_names(self) -> list[str]:
        return ["image", "factor"]

    def output_names(self) -> list[str]:
        return ["result"]


class Ours(_Members, ExportableModule):
    pass


class Theirs(_Members, torch.onnx.ExportableModule):
    pass


def _names(program: fx_onnx.ONNXProgram) -> list[Any]:
    graph = program.model.graph
    return [(value.name, *map(str, value.shape)) for value in (*graph.inputs, *graph.outputs)]


OWN = [("image", "batch", "3"), ("factor", "3"), ("result", "batch", "3")]


@pytest.mark.parametrize("export", [lambda: Ours().eval().to_onnx(), lambda: fx_onnx.export(Theirs().eval())])
def test_the_module_gives_the_arguments(export: Any) -> None:
    program = export()
    assert _names(program) == OWN
    x = torch.randn(5, 3)
    assert_close(program(x, scale=torch.full((3,), 2.0)), x.relu() * 2)


def test_the_call_has_precedence() -> None:
    program = Ours().eval().to_onnx(input_names=["x"], opset_version=19, dynamic_shapes=({0: "n"}, None))
    assert _names(program) == [("x", "n", "3"), ("scale", "3"), ("result", "n", "3")]
    assert program.model.opset_imports[""] == 19
    given = fx_onnx.export(Ours().eval(), (torch.randn(4, 3), torch.ones(3)))
    assert _names(given)[0] == ("x", "4", "3")


def test_the_class_is_that_of_the_package() -> None:
    assert fx_onnx.ExportableModule is ExportableModule
    assert issubclass(ExportableModule, torch.onnx.ExportableModule)
    assert issubclass(ExportableModule, nn.Module)


def test_the_results_of_an_input_observer() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, parts: list[Tensor], scale: Tensor | None = None) -> Tensor:
            total = x + parts[0] + parts[1]
            return total if scale is None else total * scale

    model, observer = Model().eval(), fx_onnx.InputObserver()
    with observer(model):
        for size in (2, 3):
            x = torch.randn(size, 4)
            model(x, [x, x + 1], scale=torch.ones(4))
    shapes = observer.infer_dynamic_shapes()
    program = fx_onnx.export(model, (), kwargs=observer.infer_arguments(), dynamic_shapes=shapes)
    x = torch.randn(7, 4)
    assert_close(program(x=x, parts=[x, x], scale=torch.ones(4)), 3 * x)
