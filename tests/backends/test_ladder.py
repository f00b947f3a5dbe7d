"""Opsets below the native ones: small models run at every opset, and a model keeps its IR version and its functions."""

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx import OnnxExporterError, ONNXProgram
from fx_onnx.backends.ladder import LADDER, convert_opset
from fx_onnx.onnx_model.opsets import MINIMUM_NATIVE_OPSET, OLDEST_OPSET, ir_version
from fx_onnx.passes.matchers import dims
from tests.compare import assert_close
from tests.exporting import Call
from tests.models.registry import CASES
from tests.one_capture import OneCapture
from tests.passes.checking import model, run

X = torch.randn(3, 4)
# The oldest opset that networks reach if it is not 9; opset 8 has no Erf and no Where.
REACHES = {"mlp": 7, "alexnet": 7, "resnet": 7, "mobilenet_v3": 7, "unet_bilinear": 7}
OPSETS = range(MINIMUM_NATIVE_OPSET - 1, OLDEST_OPSET - 1, -1)
SAMPLE = ("mlp", "alexnet", "resnet", "mobilenet_v3", "vit", "unet_bilinear", "transformer_encoder", "bert", "t5")


def network() -> nn.Module:
    """Returns layers that change at nearly every step."""
    return nn.Sequential(nn.Linear(4, 8), nn.Hardswish(), nn.LayerNorm(8), nn.CELU(), nn.Softmax(0)).eval()


def test_the_steps_reach_each_opset_once() -> None:
    assert [step.opset for step in LADDER] == list(OPSETS)


def test_export() -> None:
    """The whole pipeline, with the checker and the comparison of the results."""
    module = network()
    captured = OneCapture(module, (X,), dynamic_shapes=({0: "batch"},), verify=True)
    for opset in (17, 15, 13, 11, 9, 8, 7):
        program = captured.export(opset_version=opset)
        assert program.model.graph.opset_imports[""] == opset
        assert program.model.ir_version == ir_version(opset)
        assert_close(program(X[:2]), module(X[:2]))


@pytest.mark.parametrize("opset", OPSETS)
def test_ir_version(opset: int) -> None:
    """The IR version of each opset is that of ONNX's own table."""
    assert ir_version(opset) == min(row[1] for row in onnx.helper.VERSION_TABLE if row[2] == opset)


@pytest.mark.parametrize("case", [case for case in CASES if case.name in SAMPLE], ids=lambda case: case.name)
def test_models(case: Any) -> None:
    """Exported once; each opset is converted from a copy, checked, and compared with eager at another size."""
    module, other, program = case.build(), case.other(), case.export(opset_version=MINIMUM_NATIVE_OPSET)
    with torch.no_grad():
        want = module(*other.args, **other.kwargs)
    for opset in (17, 15, 13, 11, REACHES.get(case.name, 9)):  # the last one runs all steps
        converted = ONNXProgram(convert_opset(program.model.clone(), opset), program.exported_program)
        onnx.checker.check_model(ir.serde.serialize_model(converted.model), full_check=True)
        assert_close(converted(*other.args, **other.kwargs), want)


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: (x.mean((2, 3)), x.amax((1, 2), keepdim=True), x.sum(1)),
        lambda x: x.unsqueeze(1).squeeze(1).norm(dim=1),
        lambda x: torch.nn.functional.pad(x, (1, 1)).clamp(-0.5, 0.5).split(2, 1),
        lambda x: x[:, 1:, ::2].topk(2).values.cumsum(1),
        lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0).logsumexp((2, 3)),
    ],
)
def test_no_initializer_is_left_unread(forward: Any) -> None:
    """ONNX Runtime warns about each at every load. An opset makes attributes of them, such as the axes."""
    captured = OneCapture(Call(forward), (torch.randn(2, 3, 4, 4),))
    for opset in (17, 13, 12, 11, 10):
        graph = captured.export(opset_version=opset).model.graph
        assert [value.name for value in graph.initializers.values() if not value.uses()] == []


def test_a_model_in_the_wanted_opset_is_not_changed() -> None:
    """The model object and its bytes stay the same."""
    program = model("g (float[N] x) => (float[N] y) { y = Relu(x) }", opset=MINIMUM_NATIVE_OPSET)
    before = ir.serde.serialize_model(program).SerializeToString()
    assert convert_opset(program, MINIMUM_NATIVE_OPSET) is program
    assert ir.serde.serialize_model(program).SerializeToString() == before


def test_the_refusal_names_the_module_s_line() -> None:
    class Distinct(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.unique()

    with pytest.raises(
        OnnxExporterError, match=r"Unique of aten._unique2 at .*test_ladder.py:\d+, because that opset has no such oper"
    ):
        fx_onnx.export(Distinct().eval(), (torch.tensor([2, 3]),), opset_version=10)


@pytest.mark.parametrize("opset", [15, 17])
def test_modules_as_functions(opset: int) -> None:
    """The modules are cut after the conversion, so their functions are of the older opset."""
    module = network()
    program = fx_onnx.export(module, (X,), opset_version=opset, export_modules_as_functions=True, verify=True)
    assert {function.opset_imports[""] for function in program.model.functions.values()} == {opset}
    assert_close(program(X), module(X))


def test_no_size_has_a_name_of_the_shape_inference() -> None:
    """The sizes of both results get new names, in two inferences; equal names would claim equal sizes."""
    text = "g (float[N] x) => (int64[1,A] y, float[B] z) { y = NonZero(x)\n c = Greater(x, x)\n z = Compress(x, c) }"
    program = model(text, opset=18)
    for value in (*program.graph.outputs, *(value for node in program.graph for value in node.outputs)):
        value.shape = None
    convert_opset(program, 9)
    assert [dims(value) for value in program.graph.outputs] == [None, None]


def test_initializers_of_subgraphs_are_inputs_of_the_graph() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
      y = If(c) <then_branch = t () => (float[2] p) <float[2] w = {1.0, 2.0}> { p = Add(x, w) },
                 else_branch = e () => (float[2] q) { q = Neg(x) }>
    }"""
    program = convert_opset(model(text, opset=18), 7)
    onnx.checker.check_model(ir.serde.serialize_model(program), full_check=True)
    assert [value.name for value in program.graph.inputs] == ["c", "x", "w"]
    assert run(program, [torch.tensor(True), torch.zeros(2)])[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("opset", [7, 9])
def test_initializers_are_inputs_below_opset_9(opset: int, tmp_path: Path) -> None:
    """They keep their values, so the program takes the same arguments."""
    module = nn.Linear(4, 2)
    program = fx_onnx.export(module, (X,), opset_version=opset)
    names = ["input", "weight", "bias"] if opset < 9 else ["input"]
    assert [value.name for value in program.model.graph.inputs] == names
    assert_close(program(X), module(X))
    program.save(tmp_path / "model.onnx")
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)


def test_a_function_stays_where_its_body_has_the_same_meaning() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18, "local" : 1, "other" : 1]>
      g (float[2,3] x) => (float[2,3] y) { a = local.kept(x)\n y = other.split(a) }
      <domain: "local", opset_import: ["" : 18]> kept (x) => (y) { y = Softmax<axis=0>(x) }
      <domain: "other", opset_import: ["" : 18]>
      split (x) => (y) { a, b, c = Split<axis=1, num_outputs=3>(x)\n y = Concat<axis=1>(b, a, c) }""")
    program = ir.serde.deserialize_model(proto)
    x = torch.randn(2, 3)
    want = run(program, [x])
    convert_opset(program, 15)
    onnx.checker.check_model(ir.serde.serialize_model(program), full_check=True)
    assert ([name for _, name, _ in program.functions], dict(program.opset_imports)) == (["kept"], {"": 15, "local": 1})
    assert_close(run(program, [x]), want)


def test_functions_are_inlined() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
      g (float[2,3] x) => (float[2,3] y) { y = local.scaled(x) }
      <domain: "local", opset_import: ["" : 18]>
      scaled (x) => (y) {
        a = Constant<value_ints=[1]>()\n m = ReduceMean(x, a)\n d = Sub(x, m)\n y = Softmax<axis=0>(d)
      }""")
    program = ir.serde.deserialize_model(proto)
    x = torch.randn(2, 3)
    want = run(program, [x])
    convert_opset(program, 11)
    onnx.checker.check_model(ir.serde.serialize_model(program), full_check=True)
    assert not program.functions
    assert_close(run(program, [x]), want)
