"""ExportedProgram → onnx_ir.Model: names, metadata, the kinds of the signature, and what inputs and outputs may be."""

from __future__ import annotations

import ast
from typing import Any
from unittest.mock import ANY

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.decompose import decompose
from fx_onnx.aten.functionalize import functionalize
from fx_onnx.extension_points.translation_table import Translation, TranslationTable, translation_table
from fx_onnx.messages.errors import OnnxExporterWarning, TranslationError
from fx_onnx.onnx_model import metadata
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.translate import translate
from tests.compare import assert_close

NODE_KEYS = {
    "namespace",
    "pkg.torch.onnx.class_hierarchy",
    "pkg.torch.onnx.fx_node",
    "pkg.torch.onnx.name_scopes",
    "pkg.torch.onnx.stack_trace",
}
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
OUTPUT_KIND = "pkg.torch.export.graph_signature.OutputSpec.kind"


def export(module: nn.Module, *inputs: Any, **options: Any) -> fx_onnx.ONNXProgram:
    """Exports a module without optimization and checks that the model is valid ONNX."""
    program = fx_onnx.export(module.eval(), inputs, optimize=False, verbose=False, **options)
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program


def names(values: Any) -> list[str]:
    return [value.name for value in values]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("shift", torch.ones(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) * self.scale + self.shift


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.constant = torch.arange(4.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x) + self.constant


# ---------------------------------------------------------------- names and metadata


def test_values_have_the_fx_names() -> None:
    graph = export(Net(), torch.randn(2, 4)).model.graph
    exported = torch.export.export(Net(), (torch.randn(2, 4),))
    fx_names = {node.name for node in exported.graph.nodes if node.op == "call_function"}
    outputs = {value.name for node in graph for value in node.outputs}
    assert fx_names <= outputs
    assert all(name in fx_names or name.split(".")[0] in fx_names for name in outputs)


def test_weights_have_their_state_dict_names() -> None:
    module = Net()
    graph = export(module, torch.randn(2, 4)).model.graph
    assert set(module.state_dict()) <= set(graph.initializers)
    assert "blocks.0.shift" in graph.initializers, "a buffer that is not persistent is still a weight"
    for name, tensor in module.state_dict().items():
        assert graph.initializers[name].const_value.numpy().ctypes.data == tensor.data_ptr(), f"{name} was copied"


def test_every_node_has_exactly_the_metadata() -> None:
    for node in export(Net(), torch.randn(2, 4)).model.graph:
        assert set(node.metadata_props) == NODE_KEYS, node
        scopes = ast.literal_eval(node.metadata_props["pkg.torch.onnx.name_scopes"])
        classes = ast.literal_eval(node.metadata_props["pkg.torch.onnx.class_hierarchy"])
        assert len(scopes) == len(classes)
        assert "test_translate.py" in node.metadata_props["pkg.torch.onnx.stack_trace"] or "nn/modules" in str(node)


def test_the_graph_has_its_signature_and_ranges() -> None:
    program = export(Net(), torch.randn(2, 4), dynamic_shapes=({0: "batch"},))
    props = program.model.graph.metadata_props
    assert set(props) == {metadata.GRAPH_SIGNATURE, metadata.RANGE_CONSTRAINTS}
    assert props[metadata.GRAPH_SIGNATURE] == str(program.exported_program.graph_signature)
    assert props[metadata.RANGE_CONSTRAINTS] == str(program.exported_program.range_constraints)


def test_inputs_and_initializers_have_their_kind() -> None:
    graph = export(Net(), torch.randn(2, 4)).model.graph
    held = {**graph.initializers, **{value.name: value for value in graph.inputs}}
    kinds = {
        "x": ("USER_INPUT", "None"),
        "blocks.0.linear.weight": ("PARAMETER", "None"),
        "blocks.0.scale": ("BUFFER", "True"),
        "blocks.0.shift": ("BUFFER", "False"),
        "constant": ("CONSTANT_TENSOR", "None"),
    }
    for name, (kind, persistent) in kinds.items():
        assert held[name].metadata_props[KIND] == kind
        assert held[name].metadata_props[PERSISTENT] == persistent
    (output,) = graph.outputs
    assert output.metadata_props[OUTPUT_KIND] == "USER_OUTPUT"


def test_dims_have_the_users_names() -> None:
    graph = export(Net(), torch.randn(2, 4), dynamic_shapes=({0: "batch"},)).model.graph
    assert graph.inputs[0].shape == ("batch", 4)
    assert graph.outputs[0].shape == ("batch", 4)
    assert all(value.shape is not None for node in graph for value in node.outputs if "." not in value.name)


def test_translate_is_deterministic() -> None:
    exported = torch.export.export(Net(), (torch.randn(2, 4),))
    program = decompose(functionalize(AtenProgram.captured(exported)), translation_table(20))
    first, second = translate(program, translation_table(20)), translate(program, translation_table(20))
    assert ir.to_proto(first).SerializeToString() == ir.to_proto(second).SerializeToString()
    assert first.graph.opset_imports == {"": 20}


@pytest.mark.parametrize("opset", range(18, 27))
def test_every_native_opset(opset: int) -> None:
    program = export(Net(), torch.randn(2, 4), opset_version=opset)
    assert program.model.graph.opset_imports[""] == opset


# ---------------------------------------------------------------- weights


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def test_tied_weights_are_one_initializer() -> None:
    module, x = Tied(), torch.randn(2, 4)
    program = export(module, x)
    (weight,) = set(program.model.graph.initializers) - {"first.bias", "second.bias"}
    assert weight in ("first.weight", "second.weight"), "torch.export decides which of the names is used"
    assert_close(program(x), module(x))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, ignored: Tensor) -> Tensor:
        return self.used(x)


def test_unused_weights_stay_without_the_optimizer_and_unused_inputs_always() -> None:
    inputs = torch.randn(2, 4), torch.randn(3)
    optimized = fx_onnx.export(Unused(), inputs)
    assert sorted(optimized.model.graph.initializers) == ["used.bias", "used.weight"]
    program = export(Unused(), *inputs)
    assert sorted(program.model.graph.initializers) == ["unused.bias", "unused.weight", "used.bias", "used.weight"]
    assert names(program.model.graph.inputs) == ["x", "ignored"]


# ---------------------------------------------------------------- outputs


class WithParameter(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(self, x, y)


def twice(self, x, y):
    z = x + y
    return z, z


OUTPUTS = {
    "an input": lambda self, x, y: (x, x + y),
    "both inputs": lambda self, x, y: (y, x),
    "an input twice": lambda self, x, y: (x, x),
    "a value twice": twice,
    "a parameter": lambda self, x, y: (self.weight, x + y),
    "a parameter twice": lambda self, x, y: (self.weight, self.weight, x),
    "none": lambda self, x, y: (None, x + y, None),
    "a dict": lambda self, x, y: {"sum": x + y, "rest": [x, (y * x,)]},
    "an int": lambda self, x, y: (x + y, 3),
    "a size": lambda self, x, y: (x + y, x.shape[0]),
    "a bool and a float": lambda self, x, y: (x + y, True, 2.5),
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_outputs(name: str, dynamic: bool) -> None:
    module, x, y = WithParameter(OUTPUTS[name]).eval(), torch.randn(2, 3), torch.randn(2, 3)
    program = export(module, x, y, dynamic_shapes=({0: "batch"}, {0: "batch"}) if dynamic else None)
    found = names(program.model.graph.outputs)
    assert len(set(found)) == len(found), found
    assert not set(found) & set(names(program.model.graph.inputs))
    assert not set(found) & set(program.model.graph.initializers)
    with torch.no_grad():
        leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(module(x, y)) if leaf is not None]
    want = [leaf if isinstance(leaf, Tensor) else torch.tensor(leaf) for leaf in leaves]
    assert_close(program(x, y), want)
    if dynamic:
        assert_close(program(x[:1], y[:1])[:1], want[:1] if name.startswith("a parameter") else [want[0][:1]])


def test_mutated_state_comes_after_the_users_outputs() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            return x + self.count

    program = export(Counter(), torch.randn(2))
    kinds = [value.metadata_props[OUTPUT_KIND] for value in program.model.graph.outputs]
    assert kinds == ["USER_OUTPUT", "BUFFER_MUTATION"]
    result, count = program(torch.zeros(2))
    assert_close((result, count), (torch.ones(2), torch.tensor(1.0)))


# ---------------------------------------------------------------- inputs


def test_inputs_that_are_not_tensors_become_constants() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, factor: float, nothing: None, flag: bool) -> Tensor:
            return x * factor if flag else x

    program = export(Scaled(), torch.ones(2), 3.0, None, True)
    assert names(program.model.graph.inputs) == ["x"]
    assert_close(program(torch.ones(2), 3.0, None, True), torch.full((2,), 3.0))


def test_an_empty_program() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    program = export(Nothing(), torch.ones(2))
    assert_close(program(torch.ones(2)), torch.ones(2))


# ---------------------------------------------------------------- collisions


class Colliding(nn.Module):
    """An input has the name of a weight, and a weight and an input have the names of results."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.ones(3))
        self.add = nn.Parameter(torch.ones(3))
        self.constant_0 = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, mul: Tensor) -> Tensor:
        return (x * self.x + mul + self.add) * 2.0 + self.constant_0


def test_names_that_collide() -> None:
    module, x, y = Colliding(), torch.randn(3), torch.randn(3)
    program = export(module, x, y)
    graph = program.model.graph
    every = names(graph.inputs) + list(graph.initializers) + [v.name for node in graph for v in node.outputs]
    assert len(set(every)) == len(every), every
    assert "x" in {*names(graph.inputs), *graph.initializers}, "one of the two keeps the name"
    assert_close(program(x, y), module(x, y))


@pytest.mark.parametrize("inputs", [["mul", "y"], ["mul_2", "constant_1"], ["mul.Mul_0", "x.1"]])
def test_names_that_the_user_gives_and_the_program_has(inputs: list[str]) -> None:
    module, x, y = Colliding(), torch.randn(3), torch.randn(3)
    program = export(module, x, y, input_names=inputs, output_names=["mul_1"])
    graph = program.model.graph
    every = names(graph.inputs) + list(graph.initializers) + [v.name for node in graph for v in node.outputs]
    assert len(set(every)) == len(every), every
    assert names(graph.inputs) == inputs
    assert names(graph.outputs) == ["mul_1"]
    assert_close(program(x, y), module(x, y))


def test_renamed_values_remember_their_names() -> None:
    graph = export(Net(), torch.randn(2, 4), input_names=["p"], output_names=["q"]).model.graph
    assert graph.inputs[0].metadata_props[metadata.ORIGINAL_NODE_NAME] == "x"
    assert graph.outputs[0].metadata_props[metadata.ORIGINAL_NODE_NAME] == "add_2"


# ---------------------------------------------------------------- failure


def test_a_failing_translation_names_node_arguments_and_source() -> None:
    def broken(op: Any, self: Any) -> Any:
        raise KeyError("inside")

    exported = torch.export.export(Net(), (torch.randn(2, 4),))
    translations = translation_table(20).extended([Translation(torch.ops.aten.relu.default, broken)])
    program = decompose(functionalize(AtenProgram.captured(exported)), translations)
    with pytest.raises(TranslationError) as caught:
        translate(program, translations)
    message = str(caught.value)
    for part in ("relu", "aten.relu.default", "linear: float32[2, 4]", "test_translate.py:", "KeyError: 'inside'"):
        assert part in message
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_translation_of_the_wrong_dtype_is_a_failure() -> None:
    exported = torch.export.export(Net(), (torch.randn(2, 4),))
    translations = translation_table(20).extended(
        [Translation(torch.ops.aten.relu.default, lambda op, self: op.cast(self, torch.float64))]
    )
    program = decompose(functionalize(AtenProgram.captured(exported)), translations)
    with pytest.raises(TranslationError, match=r"returns double.* where the operator returns float"):
        translate(program, translations)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.float16])
def test_products_of_different_dtypes(dtype: torch.dtype) -> None:
    """torch.export captures them, though PyTorch refuses to compute them."""
    with pytest.raises(TranslationError, match=r"float32\[3, 2\].*; convert the inputs or the module.*FX1307\]"):
        fx_onnx.export(nn.Linear(2, 3).eval(), torch.ones(1, 2, dtype=dtype), verbose=False)


def test_a_translation_of_the_wrong_shape_is_a_failure() -> None:
    """Tests a translation that knows the sizes of its result. ONNX infers nothing for a translation of the package."""
    exported = torch.export.export(Net(), (torch.randn(2, 4),))

    def flat(op: Emitter, self: ir.Value) -> ir.Value:
        return op.reshape(self, [8])

    relu = torch.ops.aten.relu.default
    table = TranslationTable(20, {**translation_table(20), relu: Translation(relu, flat)})
    program = decompose(functionalize(AtenProgram.captured(exported)), table)
    with pytest.raises(
        TranslationError, match=r"flat \(\S+:\d+\) returns float\[8\] where the operator returns float\[2, 4\]"
    ):
        translate(program, table)


def test_a_text_is_no_output() -> None:
    class Labelled(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return {"label": "text", "sum": x + 1}

    with pytest.warns(OnnxExporterWarning, match="returns the text 'text', which the ONNX model leaves out"):
        program = export(Labelled(), torch.ones(2))
    assert names(program.model.graph.outputs) == ["sum"]
    assert program.call_structured(torch.ones(2)) == {"label": "text", "sum": ANY}


def test_a_float_that_is_returned_has_the_dtype_of_a_constant() -> None:
    class Floats(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return torch.sym_float(x.shape[0]), x.shape[0] / 4, 2.5

    program = fx_onnx.export(Floats(), (torch.ones(2),), dynamic_shapes=({0: "n"},), verify=True)
    assert [output.dtype for output in program.model.graph.outputs] == [ir.DataType.FLOAT] * 3


def test_a_model_without_any_output_is_refused() -> None:
    class Silent(nn.Module):
        def forward(self, x: Tensor) -> None:
            x + 1

    with pytest.raises(TranslationError, match="returns nothing and changes no state, so the ONNX model has no output"):
        export(Silent(), torch.ones(2))


def test_the_message_has_the_first_line_of_the_cause() -> None:
    def fails(op: Emitter, self: Any) -> Any:
        raise ValueError("the first line\nand a second one")

    with pytest.raises(TranslationError, match=r"relu.* failed: ValueError: the first line \[.*FX1301\]$"):
        table = {torch.ops.aten.relu.default: fails}
        fx_onnx.export(nn.ReLU().eval(), (torch.ones(2),), custom_translation_table=table)


def test_a_call_that_fails_inside_of_try_is_named():
    class Try(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            try:
                return x @ torch.ones(5, 5)
            except RuntimeError:
                return x

    with pytest.raises(
        TranslationError, match=r"call matmul = .* fails for the example.* the model catches the exception"
    ):
        export(Try(), torch.ones(4, 6))
