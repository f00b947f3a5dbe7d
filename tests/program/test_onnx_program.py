"""Tests that an ONNXProgram runs with the module's arguments, refuses others, and takes new weights and names."""

import io
import os
import subprocess
import sys
import types

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, export

import fx_onnx
from fx_onnx.messages.errors import ArgumentError, OnnxExporterWarning
from fx_onnx.onnx_model.weights import computed
from fx_onnx.program.onnx_program import ONNXProgram
from tests.modules import FourBitLinear
from tests.text_models import model_of

TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 4] x, float[4] d_b, float[4] y) => (float[batch, 3] linear, float[batch, 4] add) {
    linear = Gemm <transB = 1> (x, weight, bias)
    mul = Mul(d_b, y)
    add = Add(x, mul)
}"""


class Net(torch.nn.Module):
    """Has nested arguments, constants, keyword arguments, and a nested result that contains None."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 4))
        self.bias = torch.nn.Parameter(torch.randn(3))

    def forward(self, x, d, flag=True, mask=None, *, y, z=None):
        return {"linear": torch.nn.functional.linear(x, self.weight, self.bias), "rest": [x + d["b"] * y, None]}


ARGS = (torch.randn(2, 4), {"b": torch.randn(4)}, True, None)
KWARGS = {"y": torch.randn(4), "z": None}


@pytest.fixture(scope="module")
def net():
    return Net()


@pytest.fixture(scope="module")
def exported(net):
    shapes = {"x": {0: Dim.DYNAMIC}, "d": {"b": None}, "flag": None, "mask": None, "y": None, "z": None}
    return export(net, ARGS, KWARGS, dynamic_shapes=shapes)


@pytest.fixture
def program(net, exported):
    return ONNXProgram(model_of(TEXT, weight=net.weight, bias=net.bias), exported)


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_call(program, net):
    wanted = net(*ARGS, **KWARGS)
    found = program(*ARGS, **KWARGS)
    assert isinstance(found, tuple)
    close(found, (wanted["linear"].detach(), wanted["rest"][0]))
    other = (torch.randn(5, 4, requires_grad=True), {"b": torch.randn(8)[::2]}, True, None)
    close(program(*other, z=None, y=KWARGS["y"]), (net(*other, **KWARGS)["linear"], net(*other, **KWARGS)["rest"][0]))
    close(program.call_reference(*ARGS, **KWARGS), found)


def test_call_structured(program, net):
    found, wanted = program.call_structured(*ARGS, **KWARGS), net(*ARGS, **KWARGS)
    assert found["rest"][1:] == [None]
    close(found["linear"], wanted["linear"].detach())
    with pytest.raises(ArgumentError, match="structure"):
        ONNXProgram(program.model).call_structured(*ARGS)


def test_inputs_may_be_flat_or_named(program):
    wanted = program(*ARGS, **KWARGS)
    x, b, y = ARGS[0], ARGS[1]["b"], KWARGS["y"]
    close(program(x, b, y), wanted)
    close(program(x, y=y, d_b=b), wanted)
    close(ONNXProgram(program.model)(x, b, y), wanted)
    close(program(x.numpy(), {"b": b.numpy()}, True, None, y=y, z=None), wanted)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "its inputs are x, d_b, flag, mask, y, z, and the call gives 0 positional arguments"),
        (ARGS[:1], {}, "structure with which the model was exported"),
        ((*ARGS, torch.ones(1)), KWARGS, "structure with which the model was exported"),
        (ARGS, {"y": KWARGS["y"], "z": None, "w": 1}, "structure with which the model was exported"),
        ((ARGS[0], ARGS[1], False, None), KWARGS, "'flag' must be True, a constant of the exported model, not False"),
        (
            (ARGS[0], ARGS[1], True, torch.ones(2)),
            KWARGS,
            "'mask' must be None, a constant of the exported model, not a tensor",
        ),
        ((ARGS[0].double(), *ARGS[1:]), KWARGS, r"'x' must be float\[batch, 4\], but double\[2, 4\] was given"),
        ((torch.ones(2, 5), *ARGS[1:]), KWARGS, r"'x' must be float\[batch, 4\], but float\[2, 5\] was given"),
        ((torch.ones(4), *ARGS[1:]), KWARGS, r"'x' must be float\[batch, 4\], but float\[4\] was given"),
        ((ARGS[0], {"b": "text"}, *ARGS[2:]), KWARGS, r"'d_b' must be float\[4\], but a str was given"),
        (([ARGS[0]], *ARGS[1:]), KWARGS, "'x' must be .* but a list was given"),
        ((torch.ones(2, 4, device="meta"), *ARGS[1:]), KWARGS, "'x' is a tensor without data"),
    ],
)
def test_bad_inputs(program, args, kwargs, message):
    with pytest.raises(ArgumentError, match=message):
        program(*args, **kwargs)


def test_bad_inputs_without_an_exported_program(program):
    bare = ONNXProgram(program.model)
    with pytest.raises(ArgumentError, match=r"After 1 positional inputs the program takes \['d_b', 'y'\], not \[\]"):
        bare(ARGS[0])
    with pytest.raises(ArgumentError, match=r"takes 3 inputs \(x, d_b, y\), but the call gives 4"):
        bare(*[torch.ones(4)] * 4)


def test_outputs_do_not_share_memory_with_the_session(program, net):
    first = program.compute_values(["weight"], ARGS, KWARGS)[0]
    first.zero_()
    assert net.weight.detach().abs().sum() > 0
    out = program(*ARGS, **KWARGS)[0]
    out.zero_()
    assert program(*ARGS, **KWARGS)[0].abs().sum() > 0


def test_compute_values(program, net):
    names = ["mul", "x", "weight", "linear", "mul"]
    before = list(program.model.graph.outputs)
    mul, x, matrix, linear, again = program.compute_values(names, ARGS, KWARGS)
    close(mul, ARGS[1]["b"] * KWARGS["y"])
    assert torch.equal(mul, again)
    assert torch.equal(x, ARGS[0]) and torch.equal(matrix, net.weight.detach())
    close(linear, program(*ARGS, **KWARGS)[0])
    assert list(program.model.graph.outputs) == before
    with pytest.raises(ArgumentError, match="no value named 'nothing'"):
        program.compute_values(["mul", "nothing"], ARGS, KWARGS)


def test_model_proto_and_repr(program):
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert repr(program) == "\n".join(
        [
            "ONNXProgram(opset 18, 3 nodes, 15 parameters in 60 bytes",
            "  input  x: float[batch, 4]",
            "  input  d_b: float[4]",
            "  input  y: float[4]",
            "  output linear: float[batch, 3]",
            "  output add: float[batch, 4])",
        ]
    )


def test_save(program, tmp_path):
    program.save(tmp_path / "m.onnx")
    program.save(tmp_path / "e.onnx", external_data=True, keep_initializers_as_inputs=True)
    buffer = io.BytesIO()
    program.save(buffer, include_initializers=False)
    assert onnx.load_from_string(buffer.getvalue()).graph.initializer == []
    feeds = {"x": ARGS[0].numpy(), "d_b": ARGS[1]["b"].numpy(), "y": KWARGS["y"].numpy()}
    for name in ("m.onnx", "e.onnx"):
        found = onnxruntime.InferenceSession(str(tmp_path / name)).run(None, feeds)
        close(torch.from_numpy(found[0]), program(*ARGS, **KWARGS)[0])


# Sessions


def test_session_is_loaded_once_and_released_on_change(program, net):
    loads = []

    def initializer(source):
        loads.append(source)
        return onnxruntime.InferenceSession(source)

    program.initialize_inference_session(initializer)
    before = program(*ARGS, **KWARGS)
    program(*ARGS, **KWARGS)
    assert len(loads) == 1 and isinstance(loads[0], bytes)
    program.apply_weights({"bias": net.bias + 1})
    close(program(*ARGS, **KWARGS)[0], before[0] + 1)
    program.model = model_of(TEXT, weight=net.weight * 0, bias=net.bias * 0)
    assert program(*ARGS, **KWARGS)[0].abs().sum() == 0
    program.release()
    program.release()


def test_a_model_of_tens_of_megabytes_is_loaded_from_a_file():
    """ONNX Runtime copies the weights of a model given as bytes twice."""
    model, x, paths = torch.nn.Linear(2112, 2112).eval(), torch.randn(1, 2112), []
    program = fx_onnx.export(model, (x,))

    def initializer(source):
        paths.append(source)
        return onnxruntime.InferenceSession(source)

    program.initialize_inference_session(initializer)
    close(program(x)[0], model(x))
    close(program.compute_values(["linear"], (x,))[0], model(x))
    assert os.path.exists(paths[0])
    program.release()
    assert not os.path.exists(paths[0])


def test_optimize_replaces_the_model(program, monkeypatch):
    module = types.ModuleType("fx_onnx.passes.optimize")
    module.optimize = lambda model: model.clone()
    monkeypatch.setitem(sys.modules, "fx_onnx.passes.optimize", module)
    program(*ARGS, **KWARGS)
    before = program.model
    program.optimize()
    assert program.model is not before
    assert program._loaded is None


# Weights


def test_apply_weights_recomputes_folded_weights_and_does_not_copy(program, net):
    value = program.model.graph.initializers["bias"]
    value.const_value = computed(lambda b: b * 2, value.const_value, dtype=value.dtype, shape=(3,), name="bias")
    bias = torch.tensor([1.0, 2.0, 3.0])
    program.apply_weights({"weight": torch.zeros(3, 4), "bias": bias})
    close(program(*ARGS, **KWARGS)[0], (bias * 2).expand(2, 3))
    program.release()
    bias.add_(1)
    close(program(*ARGS, **KWARGS)[0], (bias * 2).expand(2, 3))


def test_apply_weights_refuses_other_shapes_and_warns_of_unknown_names(program, net):
    before = program(*ARGS, **KWARGS)[0]
    with pytest.raises(ArgumentError, match=r"'weight' is FLOAT\[4, 3\], but the model holds FLOAT\[3, 4\]"):
        program.apply_weights({"bias": torch.zeros(3), "weight": torch.zeros(4, 3)})
    close(program(*ARGS, **KWARGS)[0], before)
    with pytest.warns(OnnxExporterWarning, match="no weight named 'elsewhere'"):
        program.apply_weights({"elsewhere": torch.zeros(3)})


def test_apply_weights_does_not_warn_of_tied_names(program, net, recwarn):
    program.apply_weights({"weight": net.weight, "tied": net.weight})
    assert len(recwarn) == 0


def test_apply_weights_gives_data_to_fake_weights(exported, net):
    with FakeTensorMode():
        fake = {"weight": torch.zeros(3, 4), "bias": torch.zeros(3)}
    program = ONNXProgram(model_of(TEXT, **fake), exported)
    assert "15 parameters in 60 bytes" in repr(program)
    for use in (lambda: program(*ARGS, **KWARGS), lambda: program.model_proto, lambda: program.save(io.BytesIO())):
        with pytest.raises(ArgumentError, match=r"'weight' has no data,.*apply_weights"):
            use()
    program.apply_weights(net.state_dict())
    close(program.call_structured(*ARGS, **KWARGS)["linear"], net(*ARGS, **KWARGS)["linear"].detach())


# Axes


def test_rename_axes_in_subgraphs_functions_and_expressions(recwarn):
    text = """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
    g (bool c, float[s0, s1] x) => (float[s0, s1] y) {
        h = local.Twice(x)
        y = If (c) <then_branch = t () => (float[s0, s1] a) { a = Identity(h) },
                    else_branch = e () => (float[s0, s1] b) { b = Neg(h) }>
    }
    <domain: "local", opset_import: ["" : 18]>
    Twice (v) => (w) { w = Add(v, v) }"""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    inner = next(iter(model.functions.values()))[0].outputs[0]
    inner.shape = ir.Shape(["s0", "s10"])
    model.graph[0].outputs[0].shape = ir.Shape(["2*s0 + s1//s10", "s1"])
    shared = model.graph.inputs[1].shape
    model.graph.outputs[0].shape = shared
    program = ONNXProgram(model)
    program.rename_axes({shared[0]: "s1", "s1": "s0"})  # a swap
    assert model.graph.inputs[1].shape == model.graph.outputs[0].shape == ("s1", "s0")
    assert model.graph[0].outputs[0].shape == ("2*s1 + s0//s10", "s0")
    assert inner.shape == ("s1", "s10")
    assert model.graph[1].attributes["then_branch"].as_graph().outputs[0].shape == ("s1", "s0")
    program.rename_axes({"2*s1 + s0//s10": "odd"})
    assert model.graph[0].outputs[0].shape == ("odd", "s0")
    assert len(recwarn) == 0


def test_rename_axes_bad_names(program):
    with pytest.warns(OnnxExporterWarning, match="axis named 'nowhere'"):
        program.rename_axes({"nowhere": "somewhere", "batch": "N"})
    assert program.model.graph.inputs[0].shape == ("N", 4)
    for mapping in ({"N": ""}, {"N": 3}, {ir.SymbolicDim(None): "a"}, {0: "a"}):
        with pytest.raises(ArgumentError, match="must be a string that is not empty"):
            program.rename_axes(mapping)


def test_importing_the_program_does_not_load_a_runtime():
    code = "import sys, fx_onnx.program.onnx_program as _; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_numpy_arguments_do_not_change(program):
    array = np.ones((2, 4), np.float32)
    program(array, ARGS[1], True, None, **KWARGS)
    assert array.sum() == 8


def test_the_summary_counts_stored_dtypes() -> None:
    program = fx_onnx.export(FourBitLinear().eval(), (torch.randn(3, 16),), opset_version=21)
    assert program.summary().dtypes == {"int4": 6 * 16 + 6 * 4, "float": 6 * 4}
