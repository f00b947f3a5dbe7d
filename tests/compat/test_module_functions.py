"""Local functions for modules: shared by equal layers, nested, with dynamic sizes, and inline where not possible."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import pipeline
from fx_onnx.compat import module_functions
from fx_onnx.compat.module_functions import ModulesToFunctions
from fx_onnx.onnx_model import metadata
from fx_onnx.program.export_log import ExportLog
from fx_onnx.program.export_options import ExportOptions
from fx_onnx.requests.request import parse_request
from tests.compare import assert_close
from tests.one_capture import OneCapture

X = torch.randn(2, 3, 8)
DYNAMIC = ({0: "batch", 1: "length"},)


class Attention(nn.Module):
    """Reads sizes, so that the first layer computes sizes that the other layers read too."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-1, -2) + torch.ones(length, length).tril().log()).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, 8))


class Block(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.attention, self.norm, self.scale = Attention(), nn.LayerNorm(8), scale

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.attention(x) * self.scale)


class Encoder(nn.Module):
    def __init__(self, *scales: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(scale) for scale in scales])
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def _check(module: nn.Module, args: tuple[Tensor, ...], larger: tuple[Tensor, ...], **options: Any) -> ir.Model:
    """Exports the module, compares the results at two sizes, and runs ONNX's checker."""
    return _checked(module, fx_onnx.export(module.eval(), args, verify=True, **options), args, larger)


def _checked(module: nn.Module, program: fx_onnx.ONNXProgram, *calls: tuple[Tensor, ...]) -> ir.Model:
    for inputs in calls:
        assert_close(program(*inputs), module(*inputs))
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program.model


def _calls(graph: ir.Graph | ir.Function) -> list[str]:
    return [node.op_type for node in graph if node.domain]


def _named(model: ir.Model) -> dict[str, ir.Function]:
    return {function.name: function for function in model.functions.values()}


EQUAL = Encoder(1.0, 1.0, 1.0).eval()
OF_BLOCKS = OneCapture(EQUAL, (X,), dynamic_shapes=DYNAMIC, export_modules_as_functions={Block}, verify=True)


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("optimize", [True, False])
def test_equal_layers_share_a_function(opset: int, optimize: bool) -> None:
    program = OF_BLOCKS.export(opset_version=opset, optimize=optimize)
    model = _checked(EQUAL, program, (X,), (torch.randn(4, 7, 8),))
    assert _calls(model.graph) == ["Block"] * 3
    (block,) = model.functions.values()
    assert block.domain == __name__
    names = [str(value.name) for value in block.inputs]
    assert {"attention.qkv.bias", "norm.weight"} <= set(names)
    weights = [[str(v.name) for v in node.inputs if v.is_initializer()] for node in model.graph if node.domain]
    assert all(name.startswith(f"layers.{place}.") for place, own in enumerate(weights) for name in own)
    assert model.graph.opset_imports[__name__] == 1


def _attributes(nodes: Iterable[ir.Node]) -> list[dict[str, Any]]:
    return [{name: attr.value for name, attr in node.attributes.items()} for node in nodes if node.domain]


def test_a_number_that_differs_is_an_attribute_of_the_function() -> None:
    module = Encoder(2.0, 3.0, 2.0)
    model = _check(
        module, (X,), (torch.randn(4, 7, 8),), dynamic_shapes=DYNAMIC, export_modules_as_functions={Block}
    )  # fmt: skip
    assert _calls(model.graph) == ["Block"] * 3
    (block,) = model.functions.values()
    assert list(block.attributes) == ["inferred::Constant_value"]
    values = [each["inferred::Constant_value"].numpy().item() for each in _attributes(model.graph)]
    assert values == [2.0, 3.0, 2.0]


class Normed(nn.Module):
    size: int
    rates: tuple[float, ...]
    label: str
    _private: int
    weight: Tensor

    def __init__(self, eps: float, size: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8, eps)
        self.size, self.rates, self.label, self._private, self.weight = size, (1.0, 2.5), "a", 3, torch.ones(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.weight


def test_annotated_attributes_and_an_attribute_of_a_node_that_differs() -> None:
    module = nn.Sequential(Normed(1e-1, 7), Normed(1e-2), Normed(1e-1))
    model = _check(module, (X,), (X,), export_modules_as_functions={Normed})
    (function,) = model.functions.values()
    assert list(function.attributes) == ["size", "rates", "label", "_private", "inferred::LayerNormalization_epsilon"]
    found = _attributes(model.graph)
    assert [each["size"] for each in found] == [7, 8, 8]
    assert [each["inferred::LayerNormalization_epsilon"] for each in found] == pytest.approx([1e-1, 1e-2, 1e-1])
    assert (found[0]["rates"], found[0]["label"]) == ((1.0, 2.5), "a")


def test_an_attribute_reaches_the_function_inside_a_function() -> None:
    class Wrapper(nn.Module):
        def __init__(self, eps: float) -> None:
            super().__init__()
            self.inner = Normed(eps)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + 1

    module = nn.Sequential(Wrapper(1e-1), Wrapper(1e-2))
    model = _check(module, (X,), (X,), export_modules_as_functions={Wrapper, Normed})
    assert _calls(model.graph) == ["Wrapper", "Wrapper"]
    functions = _named(model)
    assert list(functions["Wrapper"].attributes) == ["inferred::LayerNormalization_epsilon"]
    (call,) = [node for node in functions["Wrapper"] if node.domain]
    assert (
        call.attributes["inferred::LayerNormalization_epsilon"].ref_attr_name == "inferred::LayerNormalization_epsilon"
    )


def test_an_exported_program_has_no_annotated_attributes() -> None:
    exported = torch.export.export(nn.Sequential(Normed(1e-1)).eval(), (X,))
    program = fx_onnx.export(exported, export_modules_as_functions={Normed})
    assert [list(function.attributes) for function in program.model.functions.values()] == [[]]


def test_nested_functions() -> None:
    model = _check(
        Encoder(1.0, 1.0), (X,), (torch.randn(4, 7, 8),), dynamic_shapes=DYNAMIC,
        export_modules_as_functions=[Block, Attention, nn.LayerNorm],
    )  # fmt: skip
    functions = _named(model)
    assert _calls(model.graph) == ["Block", "Block"]
    assert _calls(functions["Block"]) == ["Attention", "LayerNorm"]
    assert functions["LayerNorm"].domain == "torch.nn.modules.normalization"
    assert [node.op_type for node in functions["LayerNorm"]] == ["LayerNormalization"]


def test_all_modules() -> None:
    model = _check(
        Encoder(1.0, 1.0), (X,), (torch.randn(4, 7, 8),), dynamic_shapes=DYNAMIC, export_modules_as_functions=True
    )
    assert _calls(model.graph) == ["Block", "Block", "Linear"]
    assert {"Block", "Attention", "LayerNorm", "Linear"} <= set(_named(model))


def test_a_module_that_is_called_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            return self.block(self.block(x)) + 1

    model = _check(Twice(), (X,), (torch.randn(4, 7, 8),), dynamic_shapes=DYNAMIC, export_modules_as_functions={Block})
    assert _calls(model.graph) == ["Block", "Block"]
    assert len(model.functions) == 1


def test_subgraphs_inside_a_function() -> None:
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: x - 1, (x,))

    class Choices(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Choice(), Choice()

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) + self.second(-x)

    model = _check(
        Choices(), (X,), (-torch.ones(4, 7, 8),), dynamic_shapes=DYNAMIC, export_modules_as_functions={Choice}
    )
    assert _calls(model.graph) == ["Choice", "Choice"]
    assert len(model.functions) == 1


def test_several_results_and_graph_outputs() -> None:
    class Halves(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return (x + 1) / 2, (x - 1) / 2

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.halves = Halves()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            first, second = self.halves(x)
            return first, second, first * second

    options = {"output_names": ["a", "b", "c"], "export_modules_as_functions": {Halves}}
    model = _check(Net(), (X,), (torch.randn(4, 7, 8),), dynamic_shapes=DYNAMIC, **options)
    assert _calls(model.graph) == ["Halves"]
    assert [value.name for value in model.graph.outputs] == ["a", "b", "c"]


def test_a_call_that_is_not_convex_stays_inline() -> None:
    """A node of another module reads the module's first node and is read by its last one."""
    text = """g (float[N] x) => (float[N] y) { a = Relu(x)\n b = Neg(a)\n y = Add(a, b) }"""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]>\n{text}'))
    for node, path in zip(model.graph, ("inner", "other", "inner"), strict=True):
        node.metadata_props[metadata.NAME_SCOPES] = repr(["", path, "node"])
        node.metadata_props[metadata.CLASS_HIERARCHY] = repr(["Outer", f"m.{path}", "op"])
    functions = ModulesToFunctions({"m.inner"})
    assert not functions(model).modified
    assert functions.left_inline == ["inner"]
    assert [node.op_type for node in model.graph] == ["Relu", "Neg", "Add"]


def test_metadata() -> None:
    program = fx_onnx.export(Encoder(1.0, 1.0).eval(), (X,), export_modules_as_functions={Block})
    first, second = (node for node in program.model.graph if node.domain)
    assert [first.name, second.name] == ["layers.0", "layers.1"]
    assert second.metadata_props[metadata.NAME_SCOPES] == "['', 'layers.1']"
    assert second.metadata_props[metadata.CLASS_HIERARCHY] == f"['{__name__}.Encoder', '{__name__}.Block']"
    (function,) = program.model.functions.values()
    assert all(node.metadata_props.get(metadata.FX_NODE) for node in function if node.op_type != "Constant")
    assert not any(metadata.NAME_SCOPES in node.metadata_props for node in function)


def test_saved_with_external_data(tmp_path: Path) -> None:
    import onnxruntime

    module = Encoder(1.0, 1.0).eval()
    program = fx_onnx.export(module, (X,), export_modules_as_functions={Block})
    program.save(tmp_path / "model.onnx", external_data=True)
    assert (tmp_path / "model.onnx.data").stat().st_size > 0
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert_close(torch.from_numpy(session.run(None, {"x": X.numpy()})[0]), module(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"export_modules_as_functions": {"Block"}}, r"must be a bool or a set of module classes"),
        ({"export_modules_as_functions": Block}, r"must be a bool or a set of module classes"),
        ({"export_modules_as_functions": True, "opset_version": 14}, r"needs opset 15 or above, not 14"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(fx_onnx.ArgumentError, match=message):
        fx_onnx.export(Encoder(1.0).eval(), (X,), **options)


def test_modules_that_stay_inline_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_functions._Call, "is_convex", lambda self, span: False)
    module = nn.Sequential(nn.Linear(8, 2), nn.ReLU()).eval()
    log = ExportLog()
    pipeline.run(parse_request(module, (X,)), ExportOptions(modules_as_functions={nn.Linear}), log)
    assert log.notes["modules_to_functions"] == ["modules left inline: 0"]
